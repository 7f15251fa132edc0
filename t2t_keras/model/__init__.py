"""The model: `encoder`, `decoder` and `transformer`, which joins them (section 3).

The forward pass for training, and decoding step by step with a cache. Keras operations
only.
"""
