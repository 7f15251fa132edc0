"""From a trained model to texts.

`beam_search` and `sampling` find target sequences, `scoring` judges given ones,
`constraint` says what may be generated, `brackets` that it must be a tree; `translator`
puts tokenizers around them, and `batching` what is of like length together.
"""
