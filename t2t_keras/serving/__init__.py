"""Trained models as files that other programs run: `saved_model` writes them.

`text_form_graph` is what the graph does to texts, and to sentences and trees; `client`
runs what was written; `export_dir` is where it is written.
"""
