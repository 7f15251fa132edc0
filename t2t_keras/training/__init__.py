"""Training: `launch` begins it, `trainer` drives, the rest is what it consists of.

- Sections 5.3 and 5.4 of the paper: `schedule`, `loss`, `optimizer`, and `step`, on the
  replicas of a `strategy`, which the processes of a `cluster` may share. `loss_scale`
  is for float16.
- The weights: `fine_tune` begins with another run's, `average` and `ema` smooth them.
- While it runs: `options` of a run, `progress` reports (with `time_left`), `validation`
  evaluates (with `held_out`), knows the best checkpoint and keeps the average,
  `stopping` ends it.
- Afterwards, or from outside: `evaluate` scores one checkpoint, `follow` all of them.
- On the disk: `checkpoint`, `run_dir`.
- In memory: `largest_batch`, of the `train_split`, is tried first, unless `memory` is
  certainly too small for it; `fit_memory` finds it, by `fit_probe`.
"""
