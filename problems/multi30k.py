r"""Multi30k: image captions, prepared as in published comparisons.

    t2t datagen --problem translate_multi30k --data_dir data
    t2t train --problem translate_multi30k --hparams_set multi30k_pre \
        --data_dir data --output_dir runs/multi30k --save_every 100 --seed 1
    t2t evaluate runs/multi30k

`t2t datagen` downloads 1.3 MB into `data/multi30k`, or reads the files in a folder that
`--raw_dir` names: `train.en`, `train.de`, `val.en` and so on, plain or compressed; the
test set is `test_2016_flickr` or `test2016`.

No licence is published. Use the captions for research, and cite Elliott et al.,
"Multi30K: Multilingual English-German Image Descriptions" (2016), for French also
Elliott et al., "Findings of the Second Shared Task on Multimodal Machine Translation
and Multilingual Image Description" (2017).
"""

import collections
import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

from t2t_keras.cli.command import FlagGroup
from t2t_keras.console import say
from t2t_keras.data.sources import ParallelFiles
from t2t_keras.errors import UserError
from t2t_keras.evaluation.bleu import Bleu
from t2t_keras.files.atomic import write_lines
from t2t_keras.files.download import download
from t2t_keras.files.text_files import open_binary, read_lines, readable
from t2t_keras.options import option
from t2t_keras.problem import Problem, Source, Split, TextProcessor
from t2t_keras.registry import register_problem

if TYPE_CHECKING:
    import tensorflow as tf

ADDRESS = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"

# The names of the files of a split; the first one is that at the address.
NAMES: dict[Split, tuple[str, ...]] = {
    "train": ("train",),
    "dev": ("val",),
    "test": ("test_2016_flickr", "test2016"),
}

# SHA-256 of the published texts.
SHA256 = {
    "train.en": "460a15fbd157e34a7a9957ee388c1ca247fe47af3ef25fb50442af6c274e0fc6",
    "train.de": "2c2b73fd2b548fbcde3a875e0a78d6ee94d498bfdee6bd3eae3945779e9ddf72",
    "train.fr": "5925a3c18f1587b6b54b87743106e6e8ab93618edb6f65d19eac0621f853a10d",
    "val.en": "1f2a23d992769b5b3d209b0a10dd0b77c08cceb1f20dfb97ed0aafa49d107227",
    "val.de": "660e09eb7e1da2f856ea13ee5ad3cf6d36b3d5b0b733c857e94c5747a3dfc660",
    "val.fr": "5304e444d842e962b2dda4d816b70b22a1765b15401642b7ca37a67477e708dc",
    "test_2016_flickr.en": (
        "399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182"
    ),
    "test_2016_flickr.de": (
        "4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16"
    ),
    "test_2016_flickr.fr": (
        "cb3160d69b002bb638e66cc7612fcd56cb0af82eadc9c142dedc438afb885ef6"
    ),
}


def prepare(texts: Iterator[str], language: str) -> Iterator[str]:
    """Lower-cases, normalizes and tokenizes texts as in the dataset's `tok` folder.

    That was made by Moses' scripts of 2017. Unlike `evaluation.moses.tokenize`, which
    is a later one, they leave the full stop in `der nummer 28.` where it is.

    Args:
        texts: one caption each.
        language: their language, which the rules depend on.
    """
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    normalizer = MosesPunctNormalizer(language, perl_parity=True)
    tokenizer = MosesTokenizer(language)
    for text in texts:
        # A rule for quotation marks needs the line break behind them.
        normalized = normalizer.normalize(f"{text.lower()}\n")
        yield tokenizer.tokenize(normalized, return_str=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EnglishCaptions(TextProcessor):
    """Raw inputs are prepared as the training data are; other inputs look like them."""

    splits_raw_text = True

    def preprocess(self, text: str, raw: bool = False) -> str:
        """Returns the text without white space at its ends, prepared if it is raw."""
        return next(prepare(iter([text]), "en")) if raw else text.strip()

    def preprocess_graph(self, texts: "tf.Tensor", raw: bool) -> "tf.Tensor":
        """Does what `preprocess` does for texts [B] that are not raw, in the graph.

        Raises:
            UserError: the texts are raw.
        """
        if raw:
            raise UserError(
                "raw: Moses' tokenizer does not run in an exported graph; leave it "
                "out, and give the export tokenized texts"
            )
        return super().preprocess_graph(texts, raw)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CaptionFlags:
    """The flag of `t2t datagen` for Multi30k."""

    raw_dir: str | None = option(
        None,
        "a folder with Multi30k's files (default: they are downloaded)",
        metavar="DIR",
        group=FlagGroup("Multi30k's captions"),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Multi30k(Problem):
    """Translation of Multi30k's captions from English.

    Attributes:
        target: the language code of the translations.
        raw_dir: the folder with the published files; None: `multi30k` in the data
            directory, where missing ones are downloaded to.
    """

    target: str
    raw_dir: Path | None = None

    flags: ClassVar[type | None] = CaptionFlags

    def with_flags(self, flags: CaptionFlags) -> Self:
        """Returns the problem with the folder that `--raw_dir` names."""
        return self.replace(raw_dir=flags.raw_dir and Path(flags.raw_dir))

    def in_data_dir(self, data_dir: Path) -> Self:
        """Returns the problem with sources, prepared files in the data directory.

        A split that has another source keeps it.

        Raises:
            UserError: a file is missing in `raw_dir`, cannot be downloaded, is not
                text, or has another number of lines than its translation.
        """
        folder = data_dir / "multi30k"
        sides = ("en", self.target)
        splits = [split for split in NAMES if split not in self.sources]
        raw_files = {  # all of them before anything is written
            (split, side): self._raw_file(split, side, folder)
            for split in splits
            for side in sides
        }
        if raw_files:
            _warn_of_changes(raw_files)
            for split in splits:
                pairs = ParallelFiles(*(raw_files[split, side] for side in sides))
                collections.deque(pairs(), maxlen=0)  # refuses damaged files
            say("lower-casing and tokenizing the captions")
            folder.mkdir(parents=True, exist_ok=True)
        sources: dict[Split, Source] = dict(self.sources)
        for split in splits:
            # The dataset's own prepared files have these names.
            prepared = [folder / f"{NAMES[split][0]}.lc.norm.tok.{x}" for x in sides]
            for side, path in zip(sides, prepared, strict=True):
                write_lines(path, prepare(read_lines(raw_files[split, side]), side))
            sources[split] = ParallelFiles(*prepared)
        return self.replace(sources=sources)

    def _raw_file(self, split: Split, side: str, folder: Path) -> Path:
        """Returns a published file, which is downloaded to the folder if necessary."""
        for name in NAMES[split]:
            for suffix in ("", ".gz"):
                path = (self.raw_dir or folder) / f"{name}.{side}{suffix}"
                if path.exists():
                    return path
        published = f"{NAMES[split][0]}.{side}"
        address = f"{ADDRESS}/{published}.gz"
        if self.raw_dir:
            raise UserError(
                f"--raw_dir: {self.raw_dir} has no {published} or {published}.gz; "
                f"download {address}, or leave out --raw_dir"
            )
        path = folder / f"{published}.gz"
        download(address, path)
        return path


def _warn_of_changes(raw_files: Mapping[tuple[Split, str], Path]) -> None:
    """Names the files that have other texts than the published ones."""
    changed = []
    for (split, side), path in raw_files.items():
        with readable(path), open_binary(path) as file:
            digest = hashlib.sha256(file.read()).hexdigest()
        if digest != SHA256[f"{NAMES[split][0]}.{side}"]:
            changed.append(path.name)
    if changed:
        say(
            f"warning: {', '.join(changed)} in {path.parent}: not the text that was "
            "published, so scores cannot be compared with published ones"
        )


def _multi30k(target: str, language: str) -> Multi30k:
    """Returns the problem with the settings of the published comparison."""
    return Multi30k(
        summary=f"English to {language}, Multi30k captions, lower-cased and tokenized",
        target=target,
        languages=("en", target),
        vocab_size=10_000,
        beam_size=5,
        alpha=1.4,
        hparams_set="multi30k_pre",
        text_processor=EnglishCaptions(),
        metrics=Bleu(bleu_tokens="none"),
    )


@register_problem
def translate_multi30k() -> Multi30k:
    """Multi30k en-de: 29,000 captions; BLEU 41.0 on test2016 (Wu et al., ACL 2021).

    BLEU is that of lower-cased, tokenized references (sacreBLEU's tokenization "none"),
    and not comparable with BLEU of raw text. For research, with its paper: see the
    module.
    """
    return _multi30k("de", "German")


@register_problem
def translate_multi30k_enfr() -> Multi30k:
    """Multi30k en-fr, prepared and scored as `translate_multi30k`."""
    return _multi30k("fr", "French")
