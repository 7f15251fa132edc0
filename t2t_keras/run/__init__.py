"""A run directory: what training writes, and what everything else reads.

`config` has the settings of a run and finds its checkpoints, without TensorFlow;
`directory` opens a run, builds its model and loads its weights; `checkpoint` reads,
writes and averages weights; `history` records what was done and how dev was translated;
`evaluation` evaluates one checkpoint, an export, or all checkpoints.
"""
