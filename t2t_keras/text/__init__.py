"""Tokenizers: text to ids and back.

`tokenizer` has the interface, and loads vocabulary files. There are two
kinds, and those of plugins: `sentence_piece`, and tensor2tensor's `subword` with
`subword_training`. Each has a version of TensorFlow operations, `sentence_piece_graph`
and `subword_graph`, which share `graph_ids`. `standard_error` hides what C++ prints.
`bpe_dropout` is used for training examples, `sentences` splits texts that are too long
for a model, and `protected` finds what a translation should have, too.
"""
