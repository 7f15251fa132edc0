"""Trained models as files that other programs run: `saved_model`."""
