"""tensor2tensor's `translate`: problems whose texts are in published archives."""

import glob
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from t2t_keras.data.atomic_files import atomic
from t2t_keras.errors import UserError
from t2t_keras.problem import Pair

from ..missing import Missing, missing, missing_name
from . import generator_utils, text_problems
from .problem import DatasetSplit
from .text_problems import Sample, Text2TextProblem

# [address, (name of a file, name of another file)]; the names are in the archive.
Dataset = Sequence[Any]


class TranslateProblem(Text2TextProblem):
    """A problem that names its archives, or overrides `generate_samples`.

    Attributes:
        stands_for: the problem of tensor2tensor for which the class stands; "": none.
    """

    stands_for = ""

    @property
    def datatypes_to_clean(self) -> Sequence[str] | None:
        """Has no effect."""
        return None

    def source_data_files(self, dataset_split: str) -> Sequence[Dataset]:
        """Returns the archives of a split, each with the names of two files in it."""
        raise NotImplementedError

    def vocab_data_files(self) -> Sequence[Dataset]:
        """Returns the archives with whose texts the vocabulary is trained."""
        return self.source_data_files(DatasetSplit.TRAIN)

    def generate_samples(
        self,
        data_dir: str,
        tmp_dir: str,
        dataset_split: str,
        custom_iterator: Callable[
            [str, str], Iterable[Sample]
        ] = text_problems.text2text_txt_iterator,
    ) -> Iterable[Sample]:
        """Yields the samples of `source_data_files`."""
        datasets = self.source_data_files(dataset_split)
        tag = "train" if dataset_split == DatasetSplit.TRAIN else "dev"
        name = compile_data(tmp_dir, datasets, f"{self.name}-compiled-{tag}")
        return custom_iterator(f"{name}.lang1", f"{name}.lang2")

    def generate_text_for_vocab(self, data_dir: str, tmp_dir: str) -> Iterator[str]:
        """Yields some texts of `vocab_data_files`."""
        return generator_utils.generate_lines_for_vocab(
            tmp_dir, self.vocab_data_files()
        )


def problem_without_data(path: str) -> type[TranslateProblem] | Missing:
    """Returns what stands for a translation problem of tensor2tensor, without its data.

    A problem that derives from it must have its own data.

    Args:
        path: the module and the name, such as
            "data_generators.translate_ende.TranslateEndeWmt32k".
    """
    name = path.rpartition(".")[2]
    size = re.search(r"(\d+)k", name)
    if not name.startswith("Translate"):
        return missing(path)
    members = {
        "__module__": __name__,
        "stands_for": path,
        "approx_vocab_size": 1024 * int(size[1]) if size else 2**15,
    }
    return type(name, (TranslateProblem,), members)


def compile_data(
    tmp_dir: str,
    datasets: Iterable[Dataset],
    filename: str,
    datatypes_to_clean: Sequence[str] | None = None,
) -> str:
    """Writes the texts of archives into two files, `FILENAME.lang1` and `.lang2`.

    A pair with an empty side is left out, as in tensor2tensor.

    Args:
        tmp_dir: where the archives are, or are downloaded to, and where the files are
            written.
        datasets: the archives, each with two names.
        filename: the beginning of the files' names.
        datatypes_to_clean: has no effect.

    Returns:
        The path, without `.lang1`.

    Raises:
        UserError: an archive cannot be downloaded or read.
    """
    path = Path(tmp_dir) / filename
    path.parent.mkdir(parents=True, exist_ok=True)
    with (
        atomic(Path(f"{path}.lang1")) as lang1,
        atomic(Path(f"{path}.lang2")) as lang2,
        lang1.open("w", encoding="utf-8", newline="\n") as sources,
        lang2.open("w", encoding="utf-8", newline="\n") as targets,
    ):
        for dataset in datasets:
            for source, target in dataset_pairs(tmp_dir, dataset):
                source, target = source.strip(), target.strip()
                if source and target:
                    sources.write(f"{source}\n")
                    targets.write(f"{target}\n")
    return str(path)


def dataset_pairs(tmp_dir: str, dataset: Dataset) -> Iterator[Pair]:
    """Yields the pairs of one archive of `source_data_files`.

    Raises:
        UserError: it cannot be downloaded or read, or is described in another way.
    """
    try:
        address, names = dataset
        names = tuple(names)
    except (TypeError, ValueError):
        names = ()
    if names[:1] == ("tsv",) and len(names) == 4:
        yield from _pairs_of_columns(tmp_dir, address, *names[1:])
    elif len(names) != 2 or names[0] == "tmx":
        raise UserError(
            f"source_data_files: {dataset!r:.200} is not [address, (file, file)]; TMX "
            "files are read by `t2t datagen --mixture` (docs/data.md)"
        )
    else:
        yield from generator_utils.archived_pairs(tmp_dir, address, *names)


def _pairs_of_columns(
    tmp_dir: str, address: str, source: int, target: int, pattern: str
) -> Iterator[Pair]:
    """Yields two columns of the files of a pattern, which must be unpacked already."""
    paths = sorted(glob.glob(os.path.join(tmp_dir, pattern)))
    if not paths:
        raise UserError(
            f"source_data_files: there is no {os.path.join(tmp_dir, pattern)}; unpack "
            f"{address} into {tmp_dir}"
        )
    for path in paths:
        for line in text_problems.txt_line_iterator(path):
            columns = line.split("\t")
            if len(columns) > max(source, target):
                yield columns[source], columns[target]


def token_generator(
    source_path: str, target_path: str, token_vocab: Any, eos: int | None = None
) -> Iterator[dict[str, Any]]:
    """Yields the encoded lines of two files, as until tensor2tensor 1.3."""
    yield from bi_vocabs_token_generator(
        source_path, target_path, token_vocab, token_vocab, eos
    )


character_generator = token_generator


def bi_vocabs_token_generator(
    source_path: str,
    target_path: str,
    source_token_vocab: Any,
    target_token_vocab: Any,
    eos: int | None = None,
) -> Iterator[dict[str, Any]]:
    """Yields the lines of two files, each encoded with a vocabulary."""
    end = [] if eos is None else [eos]
    for sample in text_problems.text2text_txt_iterator(source_path, target_path):
        yield {
            "inputs": source_token_vocab.encode(sample["inputs"]) + end,
            "targets": target_token_vocab.encode(sample["targets"]) + end,
        }


def tabbed_generator(
    source_path: str, source_vocab: Any, target_vocab: Any, eos: int | None = None
) -> Iterator[dict[str, Any]]:
    """Yields the two columns of a file, each encoded with a vocabulary."""
    end = [] if eos is None else [eos]
    for sample in text_problems.text2text_txt_tab_iterator(source_path):
        yield {
            "inputs": source_vocab.encode(sample["inputs"]) + end,
            "targets": target_vocab.encode(sample["targets"]) + end,
        }


def __getattr__(name: str) -> Any:
    return missing_name(__name__, name)
