"""Analysis of models, and pages that show the results.

`describe` prints what a set, a run or an export is, and its `costs`: parameters, FLOPs
and memory from the hparams, and the paper's Tables 1 and 2. `compare` tests whether
`systems` differ by more than chance, by the tests of `significance`, and writes
`compare_page`; scorers of users register there. `run_page` is the page of a run,
written at once or during the training, from its `run_facts` and with `charts`;
`attention` draws a sentence's weights; `card` writes the model card, and `doctor`
checks the installation. Pages are templates of Jinja2, in which `text_differences`
marks words. No module here imports TensorFlow or Keras at module level.
"""
