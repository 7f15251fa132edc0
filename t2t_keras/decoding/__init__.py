"""From a trained model to texts.

`translator` maps texts to texts with an engine. `beam_search` and `sampling` generate
target sequences, in the loop of `decode_loop`; `scoring` scores given ones. `options`
are the settings. `constraint` is the hook that restricts what may be generated, and
`constraints` has the restrictions that options turn on. `ensemble` combines several
models.
"""
