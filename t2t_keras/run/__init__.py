"""A run directory: what training writes, and what everything else reads.

- `config` has the settings of a run, without TensorFlow.
- `directory` opens a run, builds its model and loads its weights.
- `checkpoint` reads, writes and averages weights.
"""
