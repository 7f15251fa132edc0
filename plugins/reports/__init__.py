"""Analysis of a model without running it, and pages that show its results.

`model_cost`, `step_time` and `complexity` compute numbers from the hparams (the paper's
Tables 1 to 3); `attention_page` draws attention weights, `scorers` registers external
metrics, and `difference_page` shows the sentences on which systems differ. Nothing here
imports TensorFlow or Keras at the top level.
"""
