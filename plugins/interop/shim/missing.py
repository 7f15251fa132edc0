"""Names of tensor2tensor that do not exist here: they can be imported, but not used."""

from typing import NoReturn

from t2t_keras.errors import UserError

_BINARY = (
    *("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "divmod", "pow"),
    *("lshift", "rshift", "and", "xor", "or"),
)
# The special methods by which Python uses an object: all but those of its attributes.
_USES = (
    *("call", "bool", "hash", "len", "iter", "reversed", "next", "contains"),
    *("getitem", "setitem", "delitem", "enter", "exit"),
    *("eq", "ne", "lt", "le", "gt", "ge", "instancecheck", "subclasscheck"),
    *("repr", "str", "format", "bytes", "int", "float", "complex", "index"),
    *("round", "trunc", "floor", "ceil", "neg", "pos", "abs", "invert"),
    *(prefix + name for name in _BINARY for prefix in ("", "r", "i")),
)


class Missing(type):
    """The type of a class that stands for a name of tensor2tensor.

    The class can be stored and can be a base class, and its attributes are classes of
    this type too, since they are names. Any other use of it or of a derived class
    raises `UserError`: an answer, such as "not equal", would be a wrong one.
    """

    tensor2tensor_name: str

    def __getattr__(cls, name: str) -> "Missing":
        if name.startswith("__"):
            raise AttributeError(name)
        return missing(f"{cls.tensor2tensor_name}.{name}")


def _refuse(cls: Missing, *args: object, **kwargs: object) -> NoReturn:
    """Raises `UserError`."""
    raise UserError(absence(cls))


for _use in _USES:
    setattr(Missing, f"__{_use}__", _refuse)


def missing(name: str) -> Missing:
    """Returns the class that stands for a name of tensor2tensor."""
    return Missing(name.rpartition(".")[2], (), {"tensor2tensor_name": name})


def absence(cls: Missing) -> str:
    """Returns a sentence about a name that does not exist here."""
    return (
        f"{cls.tensor2tensor_name} of tensor2tensor does not exist here "
        '(docs/from-tensor2tensor.md, "Problems", lists what does); leave it out'
    )
