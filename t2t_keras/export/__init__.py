"""Export of trained models.

`formats` has the formats, `directory` and `integrity` the files of an export.
`saved_model` writes a SavedModel, whose signatures `served_graph` defines, and `verify`
compares an export with the run. `saved_model_engine` runs a SavedModel in Python.
"""
