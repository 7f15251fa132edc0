"""The files of a model, which every node must have."""

from collections.abc import Sequence
from pathlib import Path

from t2t_keras.export.formats import find_loader


def model_files(
    model: str, checkpoint: str | None, ensemble: Sequence[str] = ()
) -> list[Path]:
    """Returns files by which a node shows that it has the model.

    Args:
        model: the directory of a run or export.
        checkpoint: the path of the run's checkpoint, if it is one.
        ensemble: the directories of further runs.
    """
    files = [Path(f"{checkpoint}.index")]
    for directory in map(Path, (model, *ensemble)):
        if find_loader(directory):
            files += directory.rglob("*")
        else:
            files += [directory / "config.json", *directory.glob("vocab.*")]
    return sorted(path for path in files if path.is_file())
