"""From a trained model to texts.

`beam_search` (with `top_k`) and `sampling` find target sequences, `scoring` judges
given ones, `constraint` says what may be generated, `brackets` that it must be a tree.
`translator` puts tokenizers around them, under `options`; `text_form` is what becomes
of its texts, and `batching` puts together what is of like length. `attention` is what
the heads look at.
"""
