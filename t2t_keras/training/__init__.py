"""Training: `launch` begins it, `trainer` runs the loop, `step` is one update.

- Sections 5.2 to 5.4 of the paper: `step` sums `loss` and gradients over micro-batches
  and the replicas of a `strategy`, which also knows the processes of a cluster;
  `optimizer` has the learning rate, the update and the moving average of the weights.
- Weights: `fine_tune` takes another run's, `average` averages checkpoints.
- While it runs: `options` say how a run is watched, `reporting` reports, `validation`
  evaluates (with `held_out`), knows the best checkpoint and keeps the average,
  `stopping` ends it.
- Afterwards, or from outside: `evaluate` scores one checkpoint, `follow` all of them.
- On the disk: `checkpoint`, `run_dir`.
- In memory: the largest batch is run first, unless `memory` is certainly too small for
  it; `fit_memory` finds the largest that fits.
"""
