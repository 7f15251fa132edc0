"""Models, data and sets of tensor2tensor.

`run` imports a training directory: `hparams` converts its hyper-parameters, and
`checkpoint` its weights. `data` adopts TFRecords. `subwords`,
`subword_training` and `tokens` are the tokenizers. `names` has the names of
hyper-parameters, and `t2t_sets` registers hparam sets and ranges.
"""
