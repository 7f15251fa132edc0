"""What comes from tensor2tensor: hparams.json, checkpoints, whole runs.

`t2t_hparams` and `t2t_checkpoint` say what their files mean here; `t2t_run` makes of
both and a vocabulary a run directory that `t2t translate` reads. (The vocabularies
themselves are `text.subword`, the data directories `data.records`.)
"""
