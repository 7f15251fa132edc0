"""Export of trained models, for programs that do not import this package.

`formats` has the formats of exports and handles their directories, `saved_model` writes
a SavedModel, whose signatures `graph` defines, `verify` compares an export with the
run, and `client` runs a SavedModel in Python.
"""
