"""Models, data and code of other programs.

`t2t` has tensor2tensor's models, data, tokenizers and hparam sets, `marian` Marian's
models. `importing` is `t2t import`, whose run directories `imported_run` writes;
`adopting` is `t2t adopt`. Imported models are of `extended_transformer`, with the
layers of `extended_model`; `tokenizer_graphs` has the tokenizers as operations,
`given_settings` reads other programs' settings, and `adafactor` is an optimizer of
tensor2tensor.

`shim` has tensor2tensor's definitions for users who define problems and hparam sets;
`as_tensor2tensor` lets their imports stay as they are.

`counterparts` says what replaces the flags, hyper-parameters and keys of other
toolkits, which `toolkits/` lists.
"""
