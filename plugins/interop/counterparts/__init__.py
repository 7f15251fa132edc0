"""What replaces a flag, hyper-parameter or key of another toolkit.

`t2t_flags`, `t2t_hparams`, `fairseq`, `opennmt_tf`, `marian` and `hugging_face` have a
`table` for each command or section of a toolkit. `lookup` explains an unknown name of a
command line (the entry point of `t2t_keras.counterparts`), and `documents` writes the
tables of `docs/`.

A sentence completes "here, ...". Code is in backticks; messages of the command line
omit the backticks around single words.
"""
