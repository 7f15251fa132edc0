"""Export of trained models, for programs that do not import this package.

`saved_model` writes an export, `export_dir` handles its directory, and `client` runs
it in Python.
"""
