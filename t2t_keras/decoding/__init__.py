"""From a trained model to texts.

`beam_search` (with `top_k`) and `sampling` find target sequences, `scoring` judges
given ones, `constraint` says what may be generated.
`translator` puts tokenizers around them, under `options`; `texts` checks what
callers pass, and `batching` puts together what is of like length. `attention` is what
the heads look at.
"""
