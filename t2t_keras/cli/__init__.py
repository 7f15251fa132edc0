"""The `t2t` command: one file for each group of verbs, one function for each verb.

The verbs are in `data`, `training`, `translation`, `evaluation`, `describe` and
`attention`; `decoding` and `verb` hold flags that several of them share,
`checks` what they refuse before TensorFlow is imported, and `lines` reads and writes
text. A verb's function turns flags into a call of a package and
returns the JSON object; `program` parses the command line, prints, and turns errors
into exit codes. TensorFlow is imported inside the verbs, so that help and listings
answer at once.
"""

from t2t_keras.cli.program import main

__all__ = ["main"]
