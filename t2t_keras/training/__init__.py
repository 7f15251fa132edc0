"""Training: `trainer` drives, the other files are what it consists of.

`launch` begins it by names of problem and hparam set, and is `t2t_keras.train`.
`schedule`, `loss`, `optimizer` and `step` are sections 5.3 and 5.4 of the paper, on the
replicas of a `strategy`, which the processes of a `cluster` may share; `loss_scale` is
for float16; `checkpoint`, `average` and `run_dir` are what training leaves
on disk; `held_out` evaluates and `progress` reports while it runs; `evaluate` scores
one checkpoint and `follow` all of them.
"""
