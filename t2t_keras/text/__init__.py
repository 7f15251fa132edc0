"""Text to ids and back, and trees to text and back.

`tokenizer` says what a tokenizer is, `load` makes one of its file; `sentence_piece` and
`subword` (tensor2tensor's own, learnt by `subword_training`) are the two kinds, each
with a version that runs in the TensorFlow graph beside it: `sentence_piece_graph` and
`subword_graph`, with `graph_ids` for both. `bpe_dropout` is for training examples.

`tree` is a bracketed tree, `tree_files` are treebanks. `linearise` turns trees into
target text and back, `brackets` repairs outputs that are not trees, `treebank_words`
makes the words of a sentence, and `punctuation` (in the graph: `punctuation_graph`)
tells which of them are punctuation.
"""
