"""Flags that plugins add to a command, and what runs when they are given."""

import argparse
import dataclasses
from collections.abc import Callable

from t2t_keras.cli.command import Command
from t2t_keras.entry_points import load_plugin, plugin_names


@dataclasses.dataclass(frozen=True)
class Extension:
    """An entry point of `t2t_keras.extensions`, named `COMMAND.NAME`.

    Attributes:
        add_flags: adds flags to the parser of the command.
        select: returns the command to run, given the extended command and the flags:
            the same unless the extension's flags are given.
    """

    add_flags: Callable[[argparse.ArgumentParser], object]
    select: Callable[[Command, argparse.Namespace], Command]


def extensions(command: str) -> list[Extension]:
    """Returns the extensions of a command; those of others are not imported."""
    plugins = []
    for name in plugin_names("extensions"):
        if name.startswith(f"{command}."):
            plugins.append(load_plugin("extensions", name))
    return [plugin for plugin in plugins if plugin is not None]
