"""Remarks on tensor2tensor's definitions, each of which is printed once."""

import functools

from t2t_keras.console import say


@functools.cache
def say_once(sentence: str) -> None:
    """Prints a sentence to standard error, but only the first time."""
    say(sentence)
