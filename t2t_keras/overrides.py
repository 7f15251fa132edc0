"""Whether the methods of a user's class can be called as those that they override."""

import inspect

from t2t_keras.errors import UserError


def require_overrides(cls: type, base: type) -> None:
    """Refuses a class with a method that lacks arguments of the one that it overrides.

    Such a method would fail when it is first called, perhaps after a training.

    Args:
        cls: a subclass, of which the public methods that it defines are checked.
        base: the class whose methods are called.

    Raises:
        UserError: a method does not take the arguments; the message has them.
    """
    for name, method in vars(cls).items():
        overridden = getattr(base, name, None)
        if name.startswith("_") or not inspect.isfunction(method):
            continue
        if not inspect.isfunction(overridden):
            continue
        signature = inspect.signature(overridden)
        try:
            inspect.signature(method).bind(*signature.parameters)
        except TypeError:
            raise UserError(
                f"{cls.__name__}.{name}{inspect.signature(method)} must take the "
                f"arguments of {base.__name__}.{name}{signature}"
            ) from None
