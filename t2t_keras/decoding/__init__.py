"""From a trained model to texts.

`translator` maps texts to texts with an `engine`; `graph_engine` is that of a run.
`search_graph` searches a batch with `beam_search` or `sampling`, in the loop of
`decode_loop`; `scoring` scores given targets. `options` are the settings. `constraint`
is the hook that restricts what may be generated, and `constraints` has the restrictions
that options turn on. `long_inputs`, `alignment`, `distinct` and `ensemble` are features
of their own.
"""
