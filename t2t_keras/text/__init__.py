"""Tokenizers: text to ids and back.

`tokenizer` has the interface and finds the kinds: `sentence_piece`, with
`sentence_piece_graph` in TensorFlow operations, and those of plugins. `graph_ids` has
what graph tokenizers share. `bpe_dropout` is for training examples, `sentences` splits
texts that are too long for a model by the rules of `sentence_ends`, and `protected`
finds what a translation must keep.
"""
