"""What comes from tensor2tensor: hparams.json, checkpoints, whole runs, data.

`t2t_hparams` and `t2t_checkpoint` say what their files mean here; `t2t_run` makes of
both and a vocabulary a run directory that `t2t translate` reads, and `t2t_data` adopts
a data directory. (The vocabularies themselves are `text.subword`.)
"""
