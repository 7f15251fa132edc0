"""What replaces a flag, hyper-parameter or key of another toolkit.

`table` has the class of the tables; `t2t_flags`, `t2t_hparams`, `fairseq`,
`opennmt_tf` and `marian` have one for each command or section of a toolkit. `lookup`
answers for an unknown name in a command line (the entry point of
`t2t_keras.counterparts`), and `remarks` for changes to tensor2tensor's hparam sets
whose names have another meaning there. `documents` writes the tables of `docs/`.

A sentence completes "here, ...". Code is in backticks, for a message of the command
line without those around single words.
"""
