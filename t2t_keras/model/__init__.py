"""The model: `encoder` and `decoder`, both a `stack`, and `transformer` (section 3).

The forward pass for training, and decoding step by step with a cache. `variants` names
the other kinds of attention, `attention_maps` are the weights of all heads. Keras
operations only.
"""
