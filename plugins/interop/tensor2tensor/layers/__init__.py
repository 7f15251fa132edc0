"""tensor2tensor's `layers`."""
