"""Tokenizers: text to ids and back.

`tokenizer` has the interface, and `load` reads a vocabulary file. There are three
kinds: `sentence_piece`, tensor2tensor's `subword` with `subword_training`, and `marian`
of imported Marian models. Each has a version of TensorFlow operations,
`sentence_piece_graph`, `subword_graph` and `marian_graph`, which share `graph_ids`.
`bpe_dropout` is used for training examples, `sentences` splits texts that are too long
for a model, and `protected` finds what a translation should have, too.
"""
