"""Trained models as files that other programs run: `saved_model`.

`tree_text` is what the graph of a parser does to sentences and trees; `client` calls
such a file from Python.
"""
