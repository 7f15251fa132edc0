"""Training: `launch` starts it, `trainer` runs the loop, `step` is one update.

- Sections 5.2 to 5.4 of the paper: `step` sums the loss and its gradients over
  micro-batches and replicas; `optimizer` has the learning rate and the update of the
  weights. `loss_scale` is for float16, and `moving_average` averages the weights.
- `strategy` places the replicas, `process_group` connects the processes of a
  distributed training, and `largest_batch` runs the largest batch once.
- `options` says when to log, save, evaluate and stop; `stopping` handles signals and
  the time limit.
- `reporting` shows the progress and writes `metrics.jsonl` and TensorBoard's events.
- `validation` evaluates on dev and keeps the best checkpoint; `callbacks` calls Keras
  callbacks; `fine_tune` takes the initial weights from another run.
"""
