"""The model: `encoder` and `decoder`, both a `stack`, and `transformer` (section 3).

The forward pass for training, and decoding step by step with a cache. Keras operations
only.
"""
