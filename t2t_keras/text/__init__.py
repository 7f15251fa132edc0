"""Tokenizers: text to ids and back.

`tokenizer` has the interface and finds the kinds: `sentence_piece`, with
`sentence_piece_graph` in TensorFlow operations, and those of plugins. `graph_ids` has
what graph tokenizers share. `bpe_dropout` is for training examples, `sentence_ends`
has the rules by which texts are split into sentences, `sentences` splits them in the
graph, also those that are too long for a model, and `protected` finds what a
translation must keep.
"""
