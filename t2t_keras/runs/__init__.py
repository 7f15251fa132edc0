"""The run directory: what training writes and everything else reads.

`run_dir` opens it with its settings, vocabularies and model; `checkpoint` reads and
writes weights, and `average` averages them; `reporting` writes `metrics.jsonl`,
TensorBoard's events and the progress bar; `train_options` has the options of a training
that do not change its steps.
"""
