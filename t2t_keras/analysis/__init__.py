"""What is known about a model without running it, and its attention drawn.

`parameters`, `flops`, `memory` and `complexity` (the paper's Tables 1 to 3) follow from
the hparams by arithmetic; `attention_page` draws weights given as arrays. Nothing here
imports TensorFlow or Keras.
"""
