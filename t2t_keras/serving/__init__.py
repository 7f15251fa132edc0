"""Trained models as files that other programs run.

`saved_model` writes them, `export_dir` is where; `client` runs what was written.
"""
