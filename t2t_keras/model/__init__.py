"""The model (section 3), of Keras operations only: it runs on any Keras backend.

`layers` has the parts, each like its equation; `transformer` puts them together: an
encoder layer, a decoder layer, the whole model, and decoding step by step with a cache.
`window_attention` is the variant of section 4, `loss` the label-smoothed cross-entropy.
`gradients` has those that are written by hand because that is faster.
"""
