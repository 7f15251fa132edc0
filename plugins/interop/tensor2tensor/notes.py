"""What a port of tensor2tensor's definitions says: each sentence once."""

import functools

from t2t_keras.data.console import say


@functools.cache
def say_once(sentence: str) -> None:
    """Prints a sentence to standard error, the first time only."""
    say(sentence)
