"""A run directory and what is in it: what training writes and everything else reads.

`run_dir` has its settings, vocabularies and model; `checkpoint` reads and writes
weights, `average` averages them; `reporting` writes `metrics.jsonl`, TensorBoard's
events and the progress bar; `train_options` say how a run is watched, kept and ended.
"""
