"""Training: `trainer` drives, the other files are what it consists of.

`schedule`, `loss`, `optimizer` and `step` are sections 5.3 and 5.4 of the paper, on the
replicas of a `strategy`, which the processes of a `cluster` may share; `loss_scale` is
for float16; `checkpoint`, `average` and `run_dir` are what training leaves
on disk; `held_out` evaluates and `progress` reports while it runs.
"""
