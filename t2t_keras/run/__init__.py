"""A run directory: what training writes, and what everything else reads.

- `config` has the settings of a run, and `checkpoint_paths` finds its checkpoints, both
  without TensorFlow.
- `directory` opens a run, builds its model and loads its weights.
- `checkpoint` reads and writes weights, `checkpoint_directory` has all checkpoints of
  a run, and `averaging` averages them.
- `history` records each training, average, evaluation and import of a run.
- `dev_samples` has some sentences of dev at each evaluation of a training.
- `evaluation` evaluates a checkpoint or an export on a split of the run's data;
  `continuous_eval` evaluates every checkpoint.
"""
