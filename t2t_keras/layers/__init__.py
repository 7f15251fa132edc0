"""The Transformer's parts, each like its equation in the paper.

`attention` (3.2), `feed_forward` (3.3), `embedding` (3.4), `position` (3.5), `residual`
(3.1, 5.4), and what they stand on: `linear`, `layer_norm`, `dropout` and `matrix`. The
variants of attention that the paper compares with its own are `additive_attention` and
`unscaled_attention` (3.2.1) and `window_attention` (4). Keras operations only.

Letters of shapes, everywhere: B batch, S source length, T target length, D model width
(d_model), F inner width (d_ff), H heads, K beams, V vocabulary; N is any number of
rows.
"""
