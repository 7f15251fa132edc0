"""Text to ids and back.

`tokenizer` says what a tokenizer is, `load` makes one of its file; `sentence_piece` and
`subword` (tensor2tensor's own) are the two kinds, each with a version that runs in the
TensorFlow graph beside it. `tree` and `linearise` turn bracketed trees into target
text and back; `brackets` repairs outputs that are no trees, and `treebank_words` makes
the words of a sentence.
"""
