"""Models, data and code of other programs.

Of tensor2tensor, `t2t_hparams` and `t2t_checkpoint` read the hparams.json and the
checkpoints; `t2t_run` writes a run directory from them and a vocabulary; `t2t_data`
adopts a data directory. (`text.subword` reads the vocabularies.) `t2t_problem` is for
modules that define its problems.

`marian_model` and `hf_marian` read a Marian model, in Marian's files and in those of
Hugging Face transformers; both use `marian_vocabulary` and `marian_weights`, and
`marian_run` writes a run directory; `hf_export` writes transformers' files from a run.
`imported_run` is for the run directories of all programs.
"""
