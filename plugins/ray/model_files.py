"""The files of a model, which every node must have."""

from collections.abc import Sequence
from pathlib import Path

from t2t_keras.cli.loaded_model import checkpoint_id
from t2t_keras.export.formats import find_loader


def model_files(
    model: str, checkpoint: str | None, ensemble: Sequence[str] = ()
) -> list[Path]:
    """Returns files by which a node shows that it has the model.

    Args:
        model: the directory of a run or export.
        checkpoint: of a run, see `t2t_keras.load`.
        ensemble: the directories of further runs.
    """
    files: list[Path] = []
    for directory in (model, *ensemble):
        if find_loader(Path(directory)):
            files += Path(directory).rglob("*")
            continue
        name = checkpoint if directory == model else None
        path, _ = checkpoint_id(directory, "latest" if name == "ema" else name)
        # The index has the checksums of all weights.
        files += [Path(f"{path}.index"), Path(directory, "config.json")]
        files += Path(directory).glob("vocab.*")
    return sorted(path for path in files if path.is_file())
