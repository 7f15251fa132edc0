"""What tensor2tensor wrote, and what its users wrote for it.

`t2t_hparams` and `t2t_checkpoint` read its hparams.json and checkpoints; `t2t_run`
writes a run directory from them and a vocabulary; `t2t_data` adopts a data directory.
(`text.subword` reads the vocabularies.) `t2t_problem` is for modules that define its
problems.
"""
