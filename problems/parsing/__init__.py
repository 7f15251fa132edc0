"""Constituency parsing: everything that only this task needs (section 6.3).

`task` has the text processor, the constraint and the metrics of parsing problems. They
use `tree` (bracketed trees), `linearise` (trees to symbols and back), `words`
(splitting a sentence into words), `punctuation` (which words EVALB ignores), `graph`
(the same as TensorFlow operations), `balanced_brackets` (the constraint) and `evalb`
(F1). `treebank` reads training examples; `commands` has the flags of `t2t datagen` for
treebanks, and the command `f1`.
"""
