"""Export of trained models, for programs that do not import this package.

`saved_model` and `ctranslate2_model` write an export, `verify` compares it with the
run, `export_dir` handles its directory, and `client` runs a SavedModel in Python.
"""
