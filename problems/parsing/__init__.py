"""Constituency parsing: everything that only this task needs (section 6.3).

`wsj` registers the problems, and `task` has their text processor, constraint and
metrics: `tree` reads bracketed trees, `linearise` makes symbols of them and back,
`words` splits sentences and finds the punctuation that EVALB ignores, `graph` does
both as TensorFlow operations, `balanced_brackets` is the constraint, and `evalb` is F1
with the `evalb_scores` of a corpus. `treebank` reads training examples, and `labels`
notices what it does not know; `commands` has the flags of `t2t datagen` for treebanks,
and the command `f1`.
"""
