"""Import of tensor2tensor's hparams.json, checkpoints, training runs and data.

`t2t_hparams` and `t2t_checkpoint` read these files; `t2t_run` writes a run directory
from them and a vocabulary, for `t2t translate`; `t2t_data` adopts a data directory.
(`text.subword` reads the vocabularies.)
"""
