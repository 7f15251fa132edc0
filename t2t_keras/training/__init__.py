"""Training: `train` opens a run, `trainer` has the loop, and `step` is one update.

- The update (5.2 to 5.4): `step` sums the loss and its gradients over micro-batches and
  replicas, with XLA by `segment_sums`; `optimizer` has the learning rate and updates
  the weights.
- Devices: `strategy` places the replicas, and connects the processes of a distributed
  training. `sanity_checks` run before the first step.
- The loop: `settings` says what to train, when to log, save, evaluate and stop;
  `stopping` handles signals and the time limit; `result` is what it returns.
- Reporting: `reporting` measures an `interval` of steps and calls the `hooks`, which
  `features` lists: `metrics_files`, `evaluations` on dev and what follows from them,
  `callbacks` of Keras, and `fine_tune`, which takes weights from another run.
"""
