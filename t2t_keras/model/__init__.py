"""The model (section 3), written in Keras operations only, for any Keras backend.

`layers` has the layers, each written like its equation; `transformer` builds encoder,
decoder and the whole model from them, and decodes step by step with a cache.
`window_attention` is the restricted self-attention of section 4, and `loss` the
label-smoothed cross-entropy. `gradients` has the gradients that are written by hand
because they are faster. `backend` has the type of tensors.
"""
