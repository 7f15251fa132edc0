"""From a trained model to texts.

- Texts: `translator` maps texts to `outputs` with an `engine`; `text_arguments` checks
  what it is given. `model_translator` makes the translator of a run, and `generation`
  that of a Keras model for its `generate`.
- Engines: `graph_engine` runs the model of a run, in `batches` of similar length that
  `parallel_search` searches in threads.
- The search: `search_graph` searches a batch with `beam_search`, which chooses among
  `candidates`, or with `sampling`, both in the loop of `decode_loop`; on a GPU beam
  search runs in `compiled_loop`, compiled by XLA. `hypotheses` are the results,
  `length_penalty` the formulas, and `blocks` are how candidates are found fast.
  `scoring` scores given targets.
- Settings: `options`, of which `phrase_options` parses phrases.
- Restrictions: `constraint` is the hook, and `constraints` has one file for each of
  the options.
- Features: `long_inputs`, `alignment`, `distinct` and `ensemble`.
"""
