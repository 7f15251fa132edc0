"""Tokenizers: text to ids and back; sentences and word alignments.

`vocabulary` has the special ids, `tokenizer` the interface. The core's own is
`sentence_piece`, with `sentence_piece_graph` in the graph; others are plugins.
`sentences` splits texts and joins outputs, `sentences_graph` does so in the graph.
`alignment` links words.
"""
