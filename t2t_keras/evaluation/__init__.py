"""Scores of finished outputs, computed as the field quotes them.

`bleu` has BLEU by sacreBLEU and by the paper's own pipeline; `bracket_f1` scores
constituency trees exactly as the EVALB program does, under parameters that
`evalb_parameters` holds and reads from EVALB's .prm files; `metrics` picks the figure
that a problem is judged by.
"""
