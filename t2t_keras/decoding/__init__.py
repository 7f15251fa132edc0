"""From a trained model to texts.

`beam_search` (with `top_k`) and `sampling` generate target sequences in the `loop` that
they share, `scoring` scores given ones, and `constraint` and `phrases` restrict what
may be generated. `ensemble` joins several models to one. `search` puts these together
as the settings in `options` say, for a batch of ids; `translator` runs it on texts.
`texts` checks the texts that callers pass, and `batching` batches inputs of similar
length. `sentence_attention` returns attention weights, from which `alignment` reads the
links between words.
"""
