"""Sources that read tensorflow-datasets."""

import contextlib
import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from t2t_keras.errors import UserError, first_line
from t2t_keras.problem import Pair

if TYPE_CHECKING:
    import tensorflow_datasets as tfds

_BATCH = 1024  # examples that are read from tensorflow-datasets at a time


@dataclasses.dataclass(frozen=True)
class TfdsPairs:
    """One split of a translation dataset of tensorflow-datasets.

    It is downloaded and prepared on first use, under `data_dir`.

    Attributes:
        name: the dataset with its configuration, such as "wmt14_translate/de-en".
        split: the split in the notation of tensorflow-datasets, such as "train[:1%]".
        source_feature: the feature with the source text, such as "en".
        target_feature: the feature with the target text, such as "de".
        data_dir: the directory in which tensorflow-datasets keeps its data; None for
            its default (`$TFDS_DATA_DIR` or `~/tensorflow_datasets`).
    """

    name: str
    split: str
    source_feature: str
    target_feature: str
    data_dir: str | Path | None = None

    def __call__(self) -> Iterator[Pair]:
        """Yields the pairs in the order in which they are stored.

        Raises:
            UserError: there is no such dataset, split or feature, it cannot be
                downloaded, or tensorflow-datasets is not installed.
        """
        builder = self._builder()
        import tensorflow_datasets as tfds

        try:
            with contextlib.redirect_stdout(sys.stderr):  # the library prints progress
                builder.download_and_prepare()
        except (OSError, tfds.download.DownloadError) as error:
            raise UserError(
                f"cannot download {self.name}: {first_line(error)}; {_advice(builder)}"
            ) from error
        for feature in (self.source_feature, self.target_feature):
            if feature not in builder.info.features:
                raise UserError(
                    f"{self.name} has no feature '{feature}', only "
                    f"{', '.join(builder.info.features)}"
                )
        try:
            dataset = builder.as_dataset(
                split=self.split,
                shuffle_files=False,
                read_config=tfds.ReadConfig(interleave_cycle_length=1),
            )
        except ValueError:
            raise UserError(
                f"{self.name} has no split '{self.split}', only "
                f"{', '.join(builder.info.splits)}"
            ) from None
        for batch in dataset.batch(_BATCH).as_numpy_iterator():
            sources = batch[self.source_feature]
            targets = batch[self.target_feature]
            for source, target in zip(sources, targets, strict=True):
                yield source.decode("utf-8"), target.decode("utf-8")

    def checksum(self) -> str:
        """Returns name and version, which identify a dataset of tensorflow-datasets."""
        features = f"{self.source_feature} {self.target_feature}"
        return f"tfds {self._builder().info.full_name} {self.split} {features}"

    def _builder(self) -> "tfds.core.DatasetBuilder":
        """Returns the dataset's builder."""
        import tensorflow_datasets as tfds

        try:
            return tfds.builder(self.name, data_dir=self.data_dir)
        except (tfds.core.DatasetNotFoundError, ValueError) as error:
            raise UserError(
                f"tensorflow-datasets: {self.name}: {first_line(error)}"
            ) from None


def _advice(builder: "tfds.core.DatasetBuilder") -> str:
    """Returns advice for a machine without a network."""
    full_name = builder.info.full_name
    return (
        "run this command on a machine with a network and copy its "
        f"~/tensorflow_datasets/{full_name} to {builder.data_dir}, or give your own "
        "files to translate_text"
    )
