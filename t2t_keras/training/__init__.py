"""Training: `launch` begins it, `trainer` runs the loop, `step` is one update.

- Sections 5.2 to 5.4 of the paper: `step` sums the loss and its gradients over
  micro-batches and the replicas of a `strategy`, which also knows the processes of a
  cluster; `optimizer` has the learning rate, the update and the moving average of the
  weights.
- `fine_tune` takes the first weights from another run; `stopping` ends a training.
- The largest batch is run first, unless `device_memory` is certainly too small for it
  (`free_memory` is what is left of it); `fit_memory` finds the largest that fits.
  `memory`, `flops` and `parameters` compute what a model needs.
- `run_dir` is the run directory (`runs` finds it without TensorFlow), `checkpoint`
  reads and writes weights, `average` averages them; `train_options` has the options
  that leave the updates as they are, `reporting` writes `metrics.jsonl` and events.
- `validation` evaluates at intervals and keeps the best checkpoint; `follow` evaluates
  one checkpoint, or every checkpoint of a run.
"""
