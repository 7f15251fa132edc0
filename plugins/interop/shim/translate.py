"""tensor2tensor's `translate`: problems whose texts are in published archives."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from t2t_keras.files.atomic import atomic

from .encoders import TextEncoder
from .files import (
    Dataset,
    Sample,
    dataset_pairs,
    generate_lines_for_vocab,
    text2text_txt_iterator,
    text2text_txt_tab_iterator,
)
from .missing import Missing, missing
from .problems import DatasetSplit, Text2TextProblem


class TranslateProblem(Text2TextProblem):
    """A problem that names its archives, or overrides `generate_samples`.

    Attributes:
        stands_for: the problem of tensor2tensor that the class stands for; "": none.
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
        """Returns the archives whose texts the vocabulary is trained on."""
        return self.source_data_files(DatasetSplit.TRAIN)

    def generate_samples(
        self,
        data_dir: str,
        tmp_dir: str,
        dataset_split: str,
        custom_iterator: Callable[
            [str, str], Iterable[Sample]
        ] = text2text_txt_iterator,
    ) -> Iterable[Sample]:
        """Yields the samples of `source_data_files`."""
        datasets = self.source_data_files(dataset_split)
        tag = "train" if dataset_split == DatasetSplit.TRAIN else "dev"
        name = compile_data(tmp_dir, datasets, f"{self.name}-compiled-{tag}")
        return custom_iterator(f"{name}.lang1", f"{name}.lang2")

    def generate_text_for_vocab(self, data_dir: str, tmp_dir: str) -> Iterator[str]:
        """Yields some texts of `vocab_data_files`."""
        return generate_lines_for_vocab(tmp_dir, self.vocab_data_files())


def problem_without_data(path: str) -> type[TranslateProblem] | Missing:
    """Returns a class that stands for a translation problem of tensor2tensor.

    It has no data, so a problem that derives from it must have its own.

    Args:
        path: the module and name, such as
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

    Like tensor2tensor, it leaves out a pair with an empty side.

    Args:
        tmp_dir: the directory of the archives, which may be downloaded, and of the two
            files.
        datasets: the archives, each with two names of files.
        filename: the common beginning of the two files' names.
        datatypes_to_clean: has no effect.

    Returns:
        The path of the first file, without `.lang1`.

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
                if source.strip() and target.strip():
                    sources.write(f"{source.strip()}\n")
                    targets.write(f"{target.strip()}\n")
    return str(path)


def token_generator(
    source_path: str,
    target_path: str,
    token_vocab: TextEncoder,
    eos: int | None = None,
) -> Iterator[dict[str, list[int]]]:
    """Yields the encoded lines of two files; it is of tensor2tensor 1.3."""
    yield from bi_vocabs_token_generator(
        source_path, target_path, token_vocab, token_vocab, eos
    )


character_generator = token_generator


def bi_vocabs_token_generator(
    source_path: str,
    target_path: str,
    source_token_vocab: TextEncoder,
    target_token_vocab: TextEncoder,
    eos: int | None = None,
) -> Iterator[dict[str, list[int]]]:
    """Yields the lines of two files, each encoded with a vocabulary."""
    samples = text2text_txt_iterator(source_path, target_path)
    return _encode(samples, source_token_vocab, target_token_vocab, eos)


def tabbed_generator(
    source_path: str,
    source_vocab: TextEncoder,
    target_vocab: TextEncoder,
    eos: int | None = None,
) -> Iterator[dict[str, list[int]]]:
    """Yields the two columns of a file, each encoded with a vocabulary."""
    samples = text2text_txt_tab_iterator(source_path)
    return _encode(samples, source_vocab, target_vocab, eos)


def _encode(
    samples: Iterable[Sample],
    source_vocab: TextEncoder,
    target_vocab: TextEncoder,
    eos: int | None,
) -> Iterator[dict[str, list[int]]]:
    suffix = [] if eos is None else [eos]
    for sample in samples:
        yield {
            "inputs": source_vocab.encode(sample["inputs"]) + suffix,
            "targets": target_vocab.encode(sample["targets"]) + suffix,
        }
