"""A problem of your own: ten lines, found by `--usr_dir examples/my_problem`.

    export MULTI30K=~/multi30k   # train.en, train.de, val.en, ..., test2016.de
    t2t datagen --usr_dir examples/my_problem --problem captions_ende --data_dir data

`captions_ende_rev` is the other direction, on the same data files.
"""

import os
from pathlib import Path

from t2t_keras import Problem, register_problem
from t2t_keras.data.sources import ParallelFiles

FILES = {"train": "train", "dev": "val", "test": "test2016"}


@register_problem
def captions_ende() -> Problem:
    """Multi30k with a shared vocabulary of 8,000 tokens."""
    folder = Path(os.environ.get("MULTI30K", "multi30k"))
    return Problem(
        summary="Multi30k image captions, English to German",
        sources={
            split: ParallelFiles(folder / f"{file}.en", folder / f"{file}.de")
            for split, file in FILES.items()
        },
        vocab_size=8000,
    )
