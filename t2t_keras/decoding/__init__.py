"""From a trained model to texts.

`translator` decodes texts as the settings in `options` say. `beam_search` and
`sampling` generate target sequences, `scoring` scores given ones and reads attention
weights, and `constraint` restricts what may be generated. `ensemble` joins several
models to one. `texts` checks the texts that callers pass, batches inputs of similar
length, and aligns words by attention weights.
"""
