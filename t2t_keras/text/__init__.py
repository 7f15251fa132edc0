"""Text to ids and back.

`tokenizer` says what a tokenizer is, `load` makes one of its file; `sentence_piece` and
`subword` (tensor2tensor's own, learnt by `subword_training`) are the two kinds, each
with a version that runs in the TensorFlow graph beside it: `sentence_piece_graph` and
`subword_graph`, with `graph_ids` for both. `bpe_dropout` is for training examples.
"""
