"""From a trained model to texts.

`beam_search` and `sampling` find target sequences, `scoring` judges given ones,
`constraint` says what may be generated; `translator` puts tokenizers around them.
"""
