"""tensor2tensor's `data_generators`."""
