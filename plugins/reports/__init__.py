"""Analysis of models without running them, and pages that show their results.

`model_cost`, `step_time` and `complexity` compute numbers from the hparams (the paper's
Tables 1 to 3), `attention_page` draws attention weights, `scorers` registers external
metrics, and `difference_page` shows the sentences on which systems differ. No module
here imports TensorFlow or Keras at module level.
"""
