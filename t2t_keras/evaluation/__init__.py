"""Scores of finished outputs, computed as the field quotes them.

`bleu` has BLEU by sacreBLEU and by the paper's own pipeline, chrF and TER; `moses` has
the scripts of that pipeline; `bracket_f1`
scores constituency trees exactly as the EVALB program does, under parameters that
`evalb_parameters` holds and reads from EVALB's .prm files, and `evalb_report` prints
them likewise; `metrics` picks the figures that a problem is judged by.
"""
