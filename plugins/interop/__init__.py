"""Models, data and code of other programs.

For tensor2tensor, `t2t_hparams` and `t2t_checkpoint` read hparams.json and checkpoints,
`t2t_model` converts them, and `t2t_run` writes a run directory; `t2t_data` adopts a
data directory. `subword`, with `subword_pieces`, `subword_graph` and
`subword_training`, is its tokenizer; `token_vocabulary` has those of whole tokens and
bytes. The package `tensor2tensor` has its modules for users who define problems and
hparam sets: `as_tensor2tensor` lets their imports stay as they are, and `t2t_problem`
has all names in one module. `t2t_sets` and `t2t_ranges` register its hparam sets and
ranges; `t2t_remarks` explains changes to the sets.

`counterparts` says what replaces the flags, hyper-parameters and keys of other
toolkits, which `toolkits/` lists.

`marian_model` reads a Marian model in Marian's files and `hf_marian_model` in those of
Hugging Face transformers, with `marian_vocabulary`, `marian_weights` and
`marian_search`; `marian_run` makes a run directory of it. `hf_marian_export` writes
transformers' files from a run.
`imported_run` writes the run directories for all programs. `importing` and `adopting`
are the commands, and `exports` registers the export.
"""
