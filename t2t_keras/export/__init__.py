"""Export of trained models, for programs that do not import this package.

`formats` has the formats of exports. `saved_model` writes a SavedModel, `quantization`
rounds its weights, `contents` writes the files beside its graph, `verify` compares an
export with the run, `export_dir` handles its directory, and `client` runs a SavedModel
in Python.
"""
