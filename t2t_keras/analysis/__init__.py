"""Analysis of a model without running it, and drawings of its attention.

`parameters`, `flops`, `memory`, `step_time` and `complexity` compute numbers from the
hparams (the paper's Tables 1 to 3); `attention_page` draws attention weights. Nothing
here imports TensorFlow or Keras.
"""
