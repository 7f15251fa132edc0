"""Analysis of a model without running it, and pages that show its results.

`model_cost`, `step_time` and `complexity` compute numbers from the
hparams (the paper's Tables 1 to 3); `attention_page` draws attention weights,
`difference_page` shows the sentences on which systems differ, and `inspection_page`
shows the faults of a corpus. Nothing here imports TensorFlow or Keras.
"""
