"""Search of hyper-parameters in ranges, by Optuna: `t2t sweep`.

`command` is the command and `settings` what a sweep is. `study` is the only module that
uses Optuna: it proposes trials, keeps them, and says which to prune. `scheduler` starts
a process for each trial; `trial_process` trains there, with `trial_hook` in the
training. Where an extension of the command runs the processes, `external_trials` is the
study for it, and `remote_trial` trains. `best_two` tests whether the best two trials
differ by more than chance, and `trials_page` shows all trials with `charts`. No module
here except `trial_hook` and `remote_trial` imports TensorFlow or Keras at module level.
"""
