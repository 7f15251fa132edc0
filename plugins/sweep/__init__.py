"""Search of hyper-parameters in ranges, by Optuna: `t2t sweep`.

`command` is the command and its table. `study` is the only module that uses Optuna: it
proposes trials, keeps them in a file that processes and machines share, and says which
to prune. `trial` starts a `t2t train` for each trial, and reports its evaluations to
the study. `page` shows all trials, with the charts of `plugins/reports`. No module here
imports TensorFlow or Keras.
"""
