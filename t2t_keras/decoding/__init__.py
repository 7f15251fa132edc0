"""From a trained model to texts.

`beam_search` (with `top_k`) and `sampling` find target sequences, `scoring` judges
given ones, `constraint` says what may be generated. `translator` puts tokenizers around
them, under `options`; `texts` checks what callers pass, and `batching` makes batches of
similar length. `sentence_attention` is what the heads attend to.
"""
