"""Tokenizers: text to ids and back.

`tokenizer` has the interface, and `tokenizers` finds the class of a name or of a
`vocabulary_file`: `sentence_piece`, with `sentence_piece_graph` in the graph and
`escapes` for both, or a plugin's. `graph_ids` is for tokenizers in the graph,
`bpe_dropout` for training examples, and `token_words` maps tokens to words. `word_list`
is the base of plugins' tokenizers whose tokens are whole words. `preprocessor` has the
tokenizers of a Keras model, and `id_tokenizer` takes their place in a model of ids.

`sentence_ends` has the rules by which texts are split into sentences; `sentences`
applies them in the graph, `long_texts` without TensorFlow. `protected` finds what a
translation must keep.
"""
