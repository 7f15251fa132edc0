"""Corpora: their inspection, further file formats, and the archives of WMT."""
