"""Models, data and code of other programs.

Of tensor2tensor, `t2t_hparams` and `t2t_checkpoint` read the hparams.json and the
checkpoints; `t2t_run` writes a run directory from them and a vocabulary; `t2t_data`
adopts a data directory. `subword`, with `subword_graph` and `subword_training`, has its
tokenizer, and `token_vocabulary` those of whole tokens and of bytes. `tensor2tensor`
has its modules for users who define problems and hparam sets; `as_tensor2tensor` lets
their imports stay as they are, and `t2t_problem` is all of it in one module.
`t2t_remarks` explains changes to its hparam sets.

`counterparts` has what replaces the flags, hyper-parameters and keys of other toolkits.

`marian_model` reads a Marian model in Marian's files and `hf_marian_model` in those of
Hugging Face transformers, with `marian_vocabulary` and `marian_weights`; `marian_run`
makes a run directory of it. `hf_marian_export` writes transformers' files from a run.
`imported_run` writes the run directories for all programs. `importing` and `adopting`
are the commands, and `exports` registers the export.
"""
