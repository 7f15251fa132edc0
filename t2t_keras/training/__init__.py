"""Training: `launch` begins it, `trainer` runs the loop, `step` is one update.

- Sections 5.2 to 5.4 of the paper: `step` sums the loss and its gradients over
  micro-batches and the replicas of a `strategy`, which also knows the processes of a
  distributed training; `optimizer` has the learning rate, the update and the moving
  average of the weights.
- `fine_tune` takes the first weights from another run.
- `control` has the options that leave the updates as they are, and what ends a training
  early; `reporting` writes `metrics.jsonl` and TensorBoard's events, and `callbacks`
  gives the same records to callbacks of Keras.
- `validation` evaluates at intervals and keeps the best checkpoint; `follow` evaluates
  one checkpoint, or every checkpoint of a run.
"""
