"""tensor2tensor's definitions, with the parts that users' problems and sets need.

`problems` and `translate` have the base classes of problems, `files` and `encoders`
what they read and make, and `hparams` the sets that users change; `registry` has the
decorators. `ported_problem` makes a problem of this package of a user's, with
`ported_members` and `ported_samples`. `missing` stands for all other names: they can be
imported, so that the remaining definitions of a file can be used; using them raises
`UserError`.

After `import t2t_keras.plugins.interop.as_tensor2tensor`, `import tensor2tensor` finds
them.
"""

import functools

from t2t_keras.console import say


@functools.cache
def say_once(sentence: str) -> None:
    """Prints a remark to standard error, but only the first time."""
    say(sentence)
