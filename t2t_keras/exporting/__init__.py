"""Export of trained models.

- Any format: `formats` lists the formats, `settings` are what an export records,
  `directory` makes its files appear as a whole and checked, `verify` compares an export
  with its run.
- SavedModel: `saved_model` writes and loads one. `served_graph` defines its signatures
  on `served_inputs`. `saved_model_engine` runs the signatures of ids.
"""
