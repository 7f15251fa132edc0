"""Analysis of models without running them, and pages that show their results.

`model_cost`, `step_time` and `complexity` compute numbers from the hparams (the paper's
Tables 1 to 3), `scorers` registers external metrics, and `difference_page` shows the
sentences on which systems differ, by `text_differences`. `attention_page` draws the
weights of `sentence_attention` by `attention_view`. `run_page` shows the `run_facts` of
a training with `charts`, `sample_list` and the `run_records`; `page` writes it, and
`live_page` while training goes on, by `page_hook`. `describe` computes what a model
costs, or prints the `directory_rows` of a run or an export. No module here except
`page_hook` imports TensorFlow or Keras at module level.
"""
