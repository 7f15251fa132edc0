"""The files of a model: which every node must have, and which one has loaded."""

from collections.abc import Sequence
from pathlib import Path

from t2t_keras.cli.loaded_model import checkpoint_id
from t2t_keras.export.formats import find_loader
from t2t_keras.run.config import RunConfig

from .source_files import module_files


def model_files(
    model: str,
    checkpoint: str | None,
    ensemble: Sequence[str] = (),
    usr_dir: str = "",
) -> list[Path]:
    """Returns files by which a node shows that it has the model.

    Args:
        model: the directory of a run or export.
        checkpoint: see `t2t_keras.load`.
        ensemble: the directories of further runs.
        usr_dir: the folder of `--usr_dir`, which has been imported; "": none.
    """
    files = module_files(usr_dir) if usr_dir else []
    for directory in (model, *ensemble):
        if find_loader(Path(directory)):
            files += Path(directory).rglob("*")
            continue
        name = "latest" if checkpoint == "ema" else checkpoint
        path, _ = checkpoint_id(directory, name)
        # The index has the checksums of all weights.
        files += [Path(f"{path}.index"), Path(directory, "config.json")]
        files += Path(directory).glob("vocab.*")
        if folder := RunConfig.read(Path(directory)).usr_dir:
            files += module_files(folder)
    return sorted({path for path in files if path.is_file()})


def weight_ids(
    model: str, checkpoint: str | None, ensemble: Sequence[str] = ()
) -> tuple[str, ...]:
    """Returns a checksum of the weights of each run; none for an export.

    A name such as "latest" may mean other weights later, when a training has gone on.

    Args:
        model: see `model_files`.
        checkpoint: see `model_files`.
        ensemble: see `model_files`.
    """
    if find_loader(Path(model)):
        return ()
    ids = []
    for run in (model, *ensemble):
        _, checksum = checkpoint_id(run, checkpoint)
        ids.append(checksum)
    return tuple(ids)
