"""Training: `train` opens a run, `trainer` has the loop, and `step` is one update.

- Before the loop: `settings` are those of the call, or of the run that is resumed.
- The update (5.2 to 5.4): `step` sums the loss and its gradients over micro-batches and
  replicas, with XLA by `segment_sums`; `optimizer` has the learning rate and updates
  the weights, on top of `optimizer_api`; `loss_scale` is for float16. `packing_check`
  refuses models that mix packed pairs.
- Devices: `strategy` places the replicas, `process_group` connects the processes of a
  distributed training, and `largest_batch` runs the largest batch once. `auto_hparams`
  chooses for a new run what is fastest on the devices, and `gpu_advice` tells the user.
- The loop: `options` says when to log, save, evaluate and stop; `stopping` handles
  signals and the time limit; `launched_processes` starts and ends the processes of
  `t2t launch`; `divergence` and `disk_space` end a training with a sentence; `result`
  is what it returns, and `finished` finds it when the training is started again.
- Reporting: `reporting` measures an `interval` of steps and calls the `hooks`;
  `time_left` estimates the remaining time. `screen`, `metrics_file`, `sample_file` and
  `tensorboard` are hooks.
- `features` lists the hooks of a training: `validation` evaluates on dev and keeps the
  `evaluations`, which `best_checkpoint`, `patience` and `final_averages` use;
  `callbacks` calls Keras callbacks, and `fine_tune` takes the initial weights from
  another run; `hook_plugins` are hooks of plugins. `moving_average` is an optimizer
  around another one.
- `trials` is what a search of hyper-parameters gives to a plugin that runs it, and
  `trial_processes` what all that run trials do.
"""
