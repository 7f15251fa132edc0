"""Export of trained models.

- Any format: `formats` lists the formats, `settings` are what an export records,
  `directory` and `integrity` make its files appear as a whole and checked,
  `text_processor_settings` finds the problem's text processor again, `verify` compares
  an export with its run, and `exported_translator` is its translator.
- SavedModel: `saved_model` writes one. `served_graph` defines its signatures, with
  `input_checks`, `row_options` and `long_texts_graph`; `stored_weight` and
  `quantization` are about the size of its weights; `verify_texts` compares the text
  processor's methods for the graph with those for Python.
- Reading a SavedModel: `saved_model_loader` chooses between `saved_model_engine`, which
  runs the signatures of ids, and `text_saved_model`, which runs those of strings.
  `search_only` is the base of engines without prefixes and attention.
"""
