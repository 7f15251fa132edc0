"""The `t2t` command: one file for each group of verbs, one function for each verb.

The verbs are in `data`, `training`, `translation`, `evaluation`, `compare`, `describe`,
`attention`, `serve`, `importing` and `inspecting`; `decoding` and `verb` declare flags
that several verbs share, `checks` has the checks that run before TensorFlow is
imported, `lines` reads and writes text, and `processes` starts the processes of
`train --processes`. A verb's function calls the library with the flags' values and
returns the JSON object; `program` parses the command line, prints, and turns errors
into exit codes. TensorFlow is imported inside the verbs, so that `--help` and `t2t
list` are fast.
"""

from t2t_keras.cli.program import main

__all__ = ["main"]
