"""From a trained model to texts.

- Texts: `translator` maps texts to hypotheses with an `engine`; `inputs` checks texts
  and splits long ones. `generation` is `Transformer.generate`.
- Engines: `graph_engine` runs the model of a run, `ensemble` several, in `batches`.
- The search: `search_graph` searches a batch with `beam_search`, which chooses among
  `candidates`, or with `sampling`, both in a loop of `search_loop`.
- Settings: `options`. Restrictions plug into `constraint`: `phrases` has glossaries and
  protected parts, `required_phrases` puts phrases into outputs, `forbidden_phrases`
  keeps them out.
"""
