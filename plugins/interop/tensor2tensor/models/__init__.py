"""tensor2tensor's `models`."""
