"""The files that sources of pairs read, so that every node can prove that it has them.

What a function of a user reads is known from the paths in its code, its closure, its
default arguments and the global names that it uses. A path that is put together when
the function runs is not found.
"""

import functools
import os
import sys
import types
from collections.abc import Iterable, Mapping
from pathlib import Path

import t2t_keras
from t2t_keras.problem import Problem

_MAX_VALUES = 100_000  # that are looked at; sources may hold their pairs in memory
_INSTALLED = (sys.prefix, sys.base_prefix)  # whose files are not the user's
# In a clone this package is not among the installed ones; its code names no sources.
_OWN_CODE = os.path.dirname(t2t_keras.__file__) + os.sep


def source_files(problem: Problem) -> list[Path]:
    """Returns the files that the sources of a problem name, absolute and sorted."""
    files = set()
    seen = set[int]()
    waiting: list[object] = list(problem.sources.values())
    while waiting and len(seen) < _MAX_VALUES:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, str | os.PathLike):
            if (path := _file(value)) is not None:
                files.add(path)
        else:
            waiting += _values(value)
    return sorted(files)


def module_files(directory: str | Path) -> list[Path]:
    """Returns the files of a folder that have been imported as modules."""
    folder = Path(directory).resolve()
    files = set()
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if path and Path(path).resolve().is_relative_to(folder):
            files.add(Path(path).resolve())
    return sorted(files)


def _file(value: str | os.PathLike[str]) -> Path | None:
    """Returns the file that a value names; None: it may be any text."""
    is_name = isinstance(value, str) and not {".", os.sep} & set(value)
    if is_name or not os.path.isfile(value):
        return None
    return Path(value).absolute()


def _values(value: object) -> Iterable[object]:
    """Returns what a value refers to, except modules and what is installed."""
    if isinstance(value, Mapping):
        return [*value.keys(), *value.values()]
    if isinstance(value, list | tuple | set | frozenset):
        return value
    if isinstance(value, functools.partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, types.MethodType):
        return [value.__self__, value.__func__]
    if isinstance(value, types.FunctionType):
        return _values_of_function(value)
    if isinstance(value, type | types.ModuleType | types.CodeType):
        return []
    values = list(getattr(value, "__dict__", {}).values())
    for base in type(value).__mro__:
        values += vars(base).values() if _is_of_user(base) else []
    return values


def _is_of_user(cls: type) -> bool:
    module = sys.modules.get(cls.__module__)
    path = getattr(module, "__file__", None)
    return path is not None and not path.startswith(_INSTALLED)


def _values_of_function(function: types.FunctionType) -> list[object]:
    if function.__code__.co_filename.startswith(_INSTALLED):
        return []
    values: list[object] = [function.__defaults__ or (), function.__kwdefaults__ or {}]
    for cell in function.__closure__ or ():
        try:
            values.append(cell.cell_contents)
        except ValueError:  # it is empty
            continue
    if function.__code__.co_filename.startswith(_OWN_CODE):
        return values
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        values += code.co_consts
        codes += [c for c in code.co_consts if isinstance(c, types.CodeType)]
        for name in code.co_names:
            values.append(function.__globals__.get(name))
    return values
