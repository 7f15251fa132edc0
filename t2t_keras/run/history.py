"""`history.jsonl` of a run: a line for every training, average, evaluation, import."""

import datetime
import importlib.metadata
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from t2t_keras.data.console import say
from t2t_keras.data.log_files import open_log, read_log

NAME = "history.jsonl"


def record_event(run_dir: Path, event: str, **facts: object) -> None:
    """Adds a line to the history, or prints a warning if that is impossible.

    Args:
        run_dir: the run directory.
        event: "training", "average", "evaluation" or "import".
        **facts: what to record of it; a value that JSON lacks becomes its type's name.
    """
    line = {
        "kind": event,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "version": importlib.metadata.version("t2t_keras"),
        **facts,
    }
    text = json.dumps(
        line, ensure_ascii=False, default=lambda value: type(value).__name__
    )
    path = run_dir / NAME
    try:
        with open_log(path) as file:
            file.write(f"{text}\n")
    except OSError as error:
        say(f"warning: {path}: {error.strerror}; this {event} is not recorded there")


def read_history(run_dir: Path, warns: bool = True) -> list[dict[str, Any]]:
    """Returns the events of a run, the oldest first.

    Args:
        run_dir: the run directory.
        warns: whether to warn of damaged lines, which are left out.
    """
    return read_log(run_dir / NAME, warns=warns)


def trainings(history: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the event of each time that the training was started and has ended."""
    return [event for event in history if event.get("kind") == "training"]
