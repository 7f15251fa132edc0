"""tensor2tensor's `utils`."""
