"""Export of trained models, for programs that do not import this package.

`saved_model` and `ctranslate2_model` write an export, `quantization` rounds the weights
of a SavedModel, `contents` writes the files beside its graph, `verify` compares an
export with the run, `export_dir` handles its directory, and `client` runs a SavedModel
in Python.
"""
