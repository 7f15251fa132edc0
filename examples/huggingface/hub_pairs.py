r"""A dataset of Hugging Face as a problem, after `pip install datasets`.

t2t datagen --usr_dir examples/huggingface --problem wmt16_roen --data_dir data
t2t train   --usr_dir examples/huggingface --problem wmt16_roen --data_dir data \
            --hparams_set base --output_dir runs/roen

`HubPairs` also reads local files of JSON, CSV or Parquet:

    HubPairs("json", "en", "de", data_files="train.json")
"""

import dataclasses
from collections.abc import Iterator

from t2t_keras import Problem, UserError, register_problem


@dataclasses.dataclass(frozen=True)
class HubPairs:
    """The pairs of one split, as `datasets.load_dataset` yields them.

    The texts of a row are in its column `translation`, as in the sets of WMT, or in two
    columns of their own.

    Attributes:
        path: a dataset of the Hub, or "json", "csv" or "parquet" for `data_files`.
        source: the column or language of the sources.
        target: the column or language of the targets.
        name: the configuration of the dataset, such as "ro-en".
        split: the split in the notation of `datasets`, such as "train[:10%]".
        data_files: local files, or addresses.
        streaming: whether rows are read from the network in every pass, of which data
            generation makes several, instead of from a copy on the disk.
    """

    path: str
    source: str
    target: str
    name: str | None = None
    split: str = "train"
    data_files: str | None = None
    streaming: bool = False

    def __call__(self) -> Iterator[tuple[str, str]]:
        """Yields the pairs in the order of the dataset."""
        try:
            import datasets
        except ImportError:
            raise UserError(f"{self.path}: run `pip install datasets`") from None
        try:
            dataset = datasets.load_dataset(
                self.path,
                self.name,
                split=self.split,
                data_files=self.data_files,
                streaming=self.streaming,
            )
        except (ConnectionError, OSError, ValueError) as error:
            reason = str(error).partition("\n")[0]
            raise UserError(f"datasets: {self.path}: {reason}") from error
        for row in dataset:
            texts = row.get("translation", row)
            for column in (self.source, self.target):
                if column not in texts:
                    raise UserError(
                        f"datasets: {self.path} has no column '{column}', only "
                        f"{', '.join(texts)}"
                    )
            yield texts[self.source], texts[self.target]


@register_problem
def wmt16_roen() -> Problem:
    """WMT 2016, Romanian to English: 610,320 pairs of the Hub."""
    splits = {"train": "train", "dev": "validation", "test": "test"}
    return Problem(
        summary="WMT 2016 from Hugging Face, Romanian to English",
        sources={
            split: HubPairs("wmt/wmt16", "ro", "en", name="ro-en", split=name)
            for split, name in splits.items()
        },
        vocab_size=16_000,
        languages=("ro", "en"),
    )
