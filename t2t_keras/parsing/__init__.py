"""Constituency parsing: everything that only this task needs (section 6.3).

`task` has the three objects with which a problem becomes a parser: its text form, its
constraint and its metrics. They are made of `tree` (bracketed trees), `linearise`
(trees to symbols and back), `words` (the words of a sentence), `punctuation` (which of
them EVALB leaves out), `graph` (the same in the TensorFlow graph), `balanced_brackets`
(the constraint) and `evalb` (F1). `treebank` reads training examples; `commands` has
the flags of `t2t datagen` about treebanks, and the verb `f1`.
"""
