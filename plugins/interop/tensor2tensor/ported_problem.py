"""Problems of tensor2tensor in our terms: their samples, vocabularies and members."""

import argparse
import contextlib
import dataclasses
import itertools
import json
import os
import random
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np

from t2t_keras.data.sides import SIDES
from t2t_keras.data.vocabulary_files import vocab_files
from t2t_keras.errors import UserError, require_local
from t2t_keras.problem import Pair, Problem, Split
from t2t_keras.text.vocabulary_file import write_vocabulary
from t2t_keras.text_processor import TextProcessor
from t2t_keras.user_code import definition_location, error_in_file

from .data_generators.problem import DatasetSplit
from .data_generators.text_encoder import EOS_ID, EncodedText, TextEncoder
from .data_generators.text_problems import Text2TextProblem, VocabType
from .models.transformer import named_set
from .notes import say_once

_PACKAGE = __name__.rpartition(".")[0]

# What `generate_samples` gets as `tmp_dir` by default, as in tensor2tensor.
TMP_DIR = os.environ.get("T2T_TMP_DIR", "/tmp/t2t_datagen")

_SEED = 429459  # tensor2tensor's --random_seed of t2t-datagen

_SPLITS: dict[str, Split] = {
    DatasetSplit.TRAIN: "train",
    DatasetSplit.EVAL: "dev",
    DatasetSplit.TEST: "test",
}
_TOKENIZERS = {
    VocabType.CHARACTER: ("t2t_bytes", 258),
    VocabType.SUBWORD: ("t2t_subword", None),
    VocabType.TOKEN: ("t2t_tokens", None),
}

# Members that make a vocabulary other than the one that datagen trains.
_OF_VOCABULARY = (
    *("feature_encoders", "get_or_create_vocab", "generate_text_for_vocab"),
    *("vocab_data_files", "vocab_filename", "vocab_file", "vocab_name"),
    *("use_vocab_from_other_problem", "generate_encoded_samples", "generator"),
)
# Members that have no effect: the sentence that is said about them.
_WITHOUT_EFFECT = {
    **dict.fromkeys(
        ("packed_length", "packed_spacing"),
        "examples are not packed, since batches are made by length",
    ),
    **dict.fromkeys(
        ("eval_metrics", "eval_metric_fns", "all_metrics_fns", "eval_hooks"),
        "training computes the loss and BLEU",
    ),
    **dict.fromkeys(
        ("hparams", "get_hparams"), "sizes of vocabularies are those of the data"
    ),
    **dict.fromkeys(
        ("input_space_id", "target_space_id", "task_id"),
        "a model has at most one target space",
    ),
    **dict.fromkeys(
        ("multiprocess_generate", "num_generate_tasks", "prepare_to_generate"),
        "use `t2t datagen --workers`",
    ),
    **dict.fromkeys(
        (
            *("training_filepaths", "dev_filepaths", "test_filepaths"),
            *("data_filepaths", "filepattern", "dataset_filename"),
        ),
        "files have the name of the problem",
    ),
    "already_shuffled": "training examples are always shuffled",
    "batch_size_means_tokens": "batches are counted in tokens",
    "datatypes_to_clean": "use `t2t datagen --clean`",
    "decode_hooks": "use `t2t evaluate`",
    "max_subtoken_length": "pieces have any length",
    "num_training_examples": "the examples are counted",
    "skip_random_fraction_when_training": "no examples are skipped",
    "export_assets": "an export contains the vocabulary",
}
# Members that make or change examples otherwise than by their texts.
_REFUSED = (
    *("generate_data", "preprocess", "dataset", "input_fn", "decode_example"),
    *("maybe_reverse_features", "maybe_copy_features", "maybe_reverse_and_copy"),
    *("serving_input_fn", "make_estimator_input_fn", "tpu_batch_size_per_shard"),
)


def ported(original: Text2TextProblem) -> "PortedProblem":
    """Returns a problem of tensor2tensor in our terms.

    Raises:
        UserError: it cannot be used; the message names the member.
    """
    _refuse_members(original)
    tokenizer, _ = _TOKENIZERS[_vocab_type(original)]
    reserved = original.additional_reserved_tokens
    of_subwords = tokenizer == "t2t_subword"
    problem = PortedProblem(
        summary=(type(original).__doc__ or "").strip().partition("\n")[0],
        sources={},
        tokenizer=tokenizer,
        vocab_size=_default_size(original),
        text_processor=TextProcessor(symbols=tuple(reserved) if of_subwords else ()),
        original=original,
    )
    if _is_overridden(original, "max_length"):
        most = original.max_length(named_set("transformer_base"))
        problem = problem.replace(max_length=most)
    samples = Samples(original, TMP_DIR, TMP_DIR)
    return problem.replace(
        sources={split: SamplesOfSplit(samples, split) for split in _shards(original)}
    )


def _overriding_class(original: object, member: str) -> type | None:
    """Returns the user's class that defines a member, if there is one."""
    for cls in type(original).__mro__:
        if member in vars(cls):
            return None if cls.__module__.startswith(_PACKAGE) else cls
    return None


def _is_overridden(original: object, member: str) -> bool:
    """Returns whether a user's class defines a member."""
    return _overriding_class(original, member) is not None


def _refuse_members(original: Text2TextProblem) -> None:
    """Raises `UserError` if the problem has a member that cannot be honoured."""
    for member in _REFUSED:
        if _is_overridden(original, member):
            raise UserError(
                f"it defines {member}, which makes or changes examples by TensorFlow "
                "1; define generate_samples instead, which yields texts (`t2t adopt` "
                "takes records that tensor2tensor made)"
            )
    if not original.has_inputs:
        raise UserError(
            "has_inputs is false, and here a problem has a source text and a target "
            "text; yield 'inputs' and 'targets'"
        )
    _refuse_other_features(original)
    samples = ("generate_samples", "generate_encoded_samples", "generator")
    if any(_is_overridden(original, member) for member in samples):
        return
    if not hasattr(original, "source_data_files"):
        raise UserError("it has no samples; define generate_samples")
    from .data_generators.translate import TranslateProblem

    if not isinstance(original, TranslateProblem):
        raise UserError(
            "it defines source_data_files and no generate_samples; derive it from "
            "translate.TranslateProblem, which reads those files"
        )
    if not _is_overridden(original, "source_data_files"):
        raise UserError(
            "it has no samples; define source_data_files or generate_samples"
        )


def _refuse_other_features(original: Text2TextProblem) -> None:
    """Raises `UserError` if examples are changed when they are read."""
    if _is_overridden(original, "preprocess_example"):
        example = {"inputs": [3, EOS_ID], "targets": [4, EOS_ID]}
        result: Any = None
        with contextlib.suppress(Exception):
            hparams = named_set("transformer_base")
            result = original.preprocess_example(dict(example), "train", hparams)
        if result != example:
            raise UserError(
                "it defines preprocess_example, which changes examples when they are "
                "read; change the texts in generate_samples"
            )
    if _is_overridden(original, "example_reading_spec"):
        names: Any = ()
        with contextlib.suppress(Exception):
            names = original.example_reading_spec()[0]
        if set(names) != {"inputs", "targets"}:
            raise UserError(
                "it defines example_reading_spec with other features than inputs and "
                "targets, which are the only ones here; leave them out"
            )


def _vocab_type(original: Text2TextProblem) -> str:
    """Returns the kind of the vocabulary; raises `UserError` if there is none such."""
    kind = original.vocab_type
    if kind not in _TOKENIZERS:
        raise UserError(
            f"vocab_type must be one of {', '.join(_TOKENIZERS)}, not {kind!r}"
        )
    return kind


def _default_size(original: Text2TextProblem) -> int:
    """Returns the size of the vocabulary without `--vocab_size`."""
    _, size = _TOKENIZERS[_vocab_type(original)]
    return size or _vocab_size(original)


def _vocab_size(original: Text2TextProblem) -> int:
    """Returns the size of the vocabulary that the problem asks for.

    Raises:
        UserError: it is not a number.
    """
    older = "targeted_vocab_size"
    is_older = _is_overridden(original, older) and not _is_overridden(
        original, "approx_vocab_size"
    )
    member = older if is_older else "approx_vocab_size"
    size = getattr(original, member)
    if isinstance(size, bool) or not isinstance(size, int | float) or size != int(size):
        raise UserError(
            f"{member} must be a number, not {size!r:.80}; write @property above it"
        )
    return int(size)


def _shards(original: Text2TextProblem) -> dict[Split, int]:
    """Returns the number of shards of each split.

    Raises:
        UserError: `dataset_splits` has another form.
    """
    shards: dict[Split, int] = {}
    for described in original.dataset_splits:
        try:
            split = _SPLITS[described["split"]]
            shards[split] = int(described["shards"])
        except (KeyError, TypeError, ValueError):
            raise UserError(
                "dataset_splits must have dictionaries such as {'split': "
                f"DatasetSplit.TRAIN, 'shards': 10}}, not {described!r:.80}"
            ) from None
    return shards


class Samples:
    """The samples of a problem as pairs, generated once and kept in temporary files.

    So a split has the same pairs each time they are read, also if `generate_samples`
    draws them.

    Args:
        original: the problem.
        data_dir: what its methods get as `data_dir`.
        tmp_dir: what they get as `tmp_dir`, and where the files are.
    """

    def __init__(self, original: Text2TextProblem, data_dir: str, tmp_dir: str) -> None:
        self._original = original
        self._dirs = data_dir, tmp_dir
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._generated: set[Split] = set()
        self._number = 0
        self.encoders: dict[str, Any] = {}  # those that have encoded samples

    def pairs(self, split: Split) -> Iterator[Pair]:
        """Yields the pairs of a split.

        Raises:
            UserError: a sample is not one of texts, or the user's code has an error.
        """
        self.generate(split)
        with self._path(split).open(encoding="utf-8") as file:
            for line in file:
                source, target = json.loads(line)
                yield source, target

    def generate(self, split: Split) -> None:
        """Generates the samples of a split, unless that is done."""
        if split in self._generated:
            return
        original = self._original
        data_dir, tmp_dir = self._dirs
        os.makedirs(tmp_dir, exist_ok=True)
        if self._directory is None:
            prefix = f"{original.name}-samples-"
            self._directory = tempfile.TemporaryDirectory(prefix=prefix, dir=tmp_dir)
        states = random.getstate(), np.random.get_state()
        random.seed(_SEED)
        np.random.seed(_SEED)
        try:
            self._write(split)
        except UserError as error:
            raise UserError(f"problem '{original.name}': {error}") from error
        except Exception as error:
            place = definition_location(type(original))
            told = error_in_file(error, place, original.name)
            raise UserError(
                f"{told} (data_dir is {data_dir}, tmp_dir is {tmp_dir})"
            ) from error
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])

    def _path(self, split: Split) -> Path:
        assert self._directory is not None
        return Path(self._directory.name) / f"{split}.jsonl"

    def _write(self, split: Split) -> None:
        """Writes the pairs of a split, or of all if they are dealt out."""
        shards = _shards(self._original)
        if self._original.is_generate_per_split:
            shards = {split: 1}
        order = [split for split, count in shards.items() for _ in range(count)]
        name = {ours: theirs for theirs, ours in _SPLITS.items()}[
            split if len(shards) == 1 else "train"
        ]
        with contextlib.ExitStack() as stack:
            files = {
                split: stack.enter_context(
                    self._path(split).open("w", encoding="utf-8")
                )
                for split in shards
            }
            self._number = 0
            pairs = self._converted(self._samples(name))
            for split, pair in zip(itertools.cycle(order), pairs, strict=False):
                files[split].write(f"{json.dumps(pair)}\n")
        self._generated.update(shards)

    def _samples(self, split: str) -> Iterable[Mapping[str, Any] | None]:
        """Returns the samples that the user's method yields."""
        original: Any = self._original
        if _is_overridden(original, "generate_encoded_samples"):
            return original.generate_encoded_samples(*self._dirs, split)
        if _is_overridden(original, "generator"):  # until tensor2tensor 1.3
            return original.generator(*self._dirs, split == DatasetSplit.TRAIN)
        return original.generate_samples(*self._dirs, split)

    def _converted(
        self, samples: Iterable[Mapping[str, Any] | None]
    ) -> Iterator[tuple[str, str]]:
        """Yields the samples as pairs."""
        if samples is None or isinstance(samples, str | Mapping):
            raise UserError(
                f"generate_samples must yield samples, not return {samples!r:.40}"
            )
        for sample in samples:
            self._number += 1
            if sample is None:  # tensor2tensor passes over it
                continue
            if not isinstance(sample, Mapping):
                raise UserError(
                    f"sample {self._number} must have 'inputs' and 'targets', but is "
                    f"{sample!r:.80}"
                )
            for key in sample.keys() - {"inputs", "targets"}:
                say_once(
                    f"problem '{self._original.name}': '{key}' of its samples has no "
                    "effect"
                )
            source = self._text(sample, "inputs", self._original.inputs_prefix)
            target = self._text(sample, "targets", self._original.targets_prefix)
            yield source, target

    def _text(self, sample: Mapping[str, Any], key: str, prefix: str) -> str:
        """Returns a text of a sample.

        Raises:
            UserError: the sample does not have it.
        """
        place = f"sample {self._number}"
        if key not in sample:
            raise UserError(
                f"{place} has no '{key}', only {', '.join(map(repr, sample))}; here a "
                "problem has a source text and a target text"
            )
        value = sample[key]
        if isinstance(value, bytes):
            value = value.decode()
        if isinstance(value, str):
            return prefix + value
        if isinstance(value, list | tuple | np.ndarray):
            return self._decoded(list(value), value, key)
        raise UserError(f"{place}: '{key}' must be a text, not {value!r:.80}")

    def _decoded(self, ids: list[int], value: object, key: str) -> str:
        """Returns the text of ids.

        Raises:
            UserError: they are not the ids of a text.
        """
        place = f"sample {self._number}: '{key}'"
        if not all(isinstance(i, int | np.integer) for i in ids):
            raise UserError(f"{place} must be a text, not {value!r:.80}")
        if ids[-1:] == [EOS_ID]:
            ids = ids[:-1]
        if isinstance(value, EncodedText) and value.encoder.encode(value.text) == ids:
            self.encoders.setdefault(key, value.encoder)
            return value.text
        if key not in self.encoders:
            made = self._original.get_feature_encoders(self._dirs[0])
            self.encoders[key] = made[key]
        text = self.encoders[key].decode(ids)
        if not isinstance(text, str) or list(self.encoders[key].encode(text)) != ids:
            raise UserError(
                f"{place} has ids that are not those of a text; yield texts in "
                "generate_samples instead"
            )
        return text


@dataclasses.dataclass(frozen=True)
class SamplesOfSplit:
    """The source of a split.

    Attributes:
        samples: the samples of all splits.
        split: the split.
    """

    samples: Samples
    split: Split

    def __call__(self) -> Iterator[Pair]:
        """Yields the pairs; see `Samples.pairs`."""
        return self.samples.pairs(self.split)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PortedProblem(Problem):
    """A problem of tensor2tensor.

    Attributes:
        original: the problem as its user has defined it.
        tmp_dir: the directory for downloads and scratch files.
    """

    original: Any
    tmp_dir: str = TMP_DIR

    def add_flags(self, parser: argparse._ActionsContainer) -> None:
        """Adds `--tmp_dir`."""
        parser.add_argument(
            "--tmp_dir",
            metavar="DIR",
            help="the directory for downloads, and of files that generate_samples "
            f"reads there (default: $T2T_TMP_DIR, or {TMP_DIR})",
        )

    def with_flags(self, args: argparse.Namespace) -> Self:
        """Returns the problem with the directory of `--tmp_dir`."""
        tmp_dir = getattr(args, "tmp_dir", None)
        if not tmp_dir:
            return self
        require_local("--tmp_dir", tmp_dir)
        return self._in_directories(tmp_dir, tmp_dir)

    def _in_directories(self, data_dir: str, tmp_dir: str) -> Self:
        """Returns the problem whose methods get these directories."""
        samples = Samples(self.original, data_dir, tmp_dir)
        sources = {
            split: SamplesOfSplit(samples, split)
            if isinstance(source, SamplesOfSplit)
            else source
            for split, source in self.sources.items()
        }
        return self.replace(sources=sources, tmp_dir=tmp_dir)

    def in_data_dir(self, data_dir: Path) -> Self:
        """Returns the problem with its samples and vocabulary for a data directory.

        The vocabulary is made here if the problem makes it otherwise than datagen.

        Raises:
            UserError: the user's code has an error, or its vocabulary has no tokenizer
                here.
        """
        original = self.original
        self._say_members()
        os.makedirs(data_dir, exist_ok=True)
        problem = self._in_directories(str(data_dir), self.tmp_dir)
        # Given by --vocab, or made by an earlier run.
        names = vocab_files(problem).values()
        if all((data_dir / name).exists() for name in names):
            return problem
        is_made = any(_is_overridden(original, member) for member in _OF_VOCABULARY)
        if self.tokenizer == "t2t_tokens" or is_made:
            if self.vocab_size != _default_size(original):
                raise UserError(
                    f"problem '{self.data_name}' makes its vocabulary itself, so "
                    "--vocab_size has no effect; leave it out"
                )
            return problem._with_vocabulary(data_dir)
        if _is_overridden(original, "max_samples_for_vocab"):
            say_once(
                f"problem '{self.data_name}': max_samples_for_vocab has no effect: the "
                "vocabulary is trained on at most 50,000 pairs"
            )
        return problem

    def _say_members(self) -> None:
        """Says which members have no effect."""
        for member, reason in _WITHOUT_EFFECT.items():
            if _is_overridden(self.original, member):
                say_once(
                    f"problem '{self.data_name}': {member} has no effect: {reason}"
                )
        if stands_for := getattr(self.original, "stands_for", ""):
            say_once(
                f"problem '{self.data_name}': tensor2tensor's {stands_for} does not "
                "exist here; what it defines is as in TranslateProblem"
            )
        if self.original.additional_reserved_tokens and not self.symbols:
            say_once(
                f"problem '{self.data_name}': additional_reserved_tokens has no effect "
                "with this vocab_type"
            )

    def _with_vocabulary(self, data_dir: Path) -> Self:
        """Returns the problem with the vocabulary that its methods make."""
        original = self.original
        try:
            encoders = self._encoders(data_dir)
        except UserError as error:
            if f"'{self.data_name}': " in str(error):
                raise
            raise UserError(f"problem '{self.data_name}': {error}") from error
        except Exception as error:
            place = definition_location(type(original))
            raise error_in_file(error, place, self.data_name) from error
        for encoder in encoders.values():
            if encoder.tokenizer is None or _is_overridden(encoder, "encode"):
                raise UserError(
                    f"problem '{self.data_name}': its encoder "
                    f"{type(encoder).__name__} has no tokenizer here; use "
                    "SubwordTextEncoder, TokenTextEncoder or ByteTextEncoder"
                )
        source, target = (encoders[key] for key in ("inputs", "targets"))
        if source.tokenizer != target.tokenizer:
            raise UserError(
                f"problem '{self.data_name}': its inputs and targets have vocabularies "
                "of different kinds; use one kind"
            )
        with tempfile.TemporaryDirectory() as directory:
            paths = [Path(directory) / side for side in SIDES]
            source.write(paths[0])
            target.write(paths[1])
            contents = [path.read_bytes() for path in paths]
        problem = self.replace(
            tokenizer=source.tokenizer,
            vocab_size=max(content.count(b"\n") for content in contents),
            shared_vocab=contents[0] == contents[1],
        )
        names = vocab_files(problem)
        for side, content in zip(SIDES, contents, strict=True):
            path = data_dir / names[side]
            if path.exists() and path.read_bytes() != content:
                raise UserError(f"{path} is another vocabulary; give a new --data_dir")
            write_vocabulary(path, content)
        return problem

    def _encoders(self, data_dir: Path) -> dict[str, TextEncoder]:
        """Returns the encoders of inputs and targets."""
        original, tmp_dir = self.original, self.tmp_dir
        source = self.sources.get("train")
        samples = source.samples if isinstance(source, SamplesOfSplit) else None
        if samples is not None:
            samples.generate("train")  # it may write the vocabulary file
        if samples is not None and samples.encoders.keys() >= {"inputs", "targets"}:
            return samples.encoders
        if _is_overridden(original, "feature_encoders"):
            if not _is_overridden(original, "get_or_create_vocab"):
                with contextlib.suppress(UserError, OSError):
                    original.get_or_create_vocab(str(data_dir), tmp_dir)
            encoders = original.feature_encoders(str(data_dir))
        else:
            encoder = original.get_or_create_vocab(str(data_dir), tmp_dir)
            encoders = {"inputs": encoder, "targets": encoder}
        for split in self.sources:
            self._check_tokens(split, encoders)
        return encoders

    def _check_tokens(self, split: Split, encoders: Mapping[str, TextEncoder]) -> None:
        """Encodes all texts, if an encoder refuses those outside its vocabulary."""
        source = self.sources[split]
        if not any(encoder.tokenizer == "t2t_tokens" for encoder in encoders.values()):
            return
        for number, pair in enumerate(source(), start=1):
            for key, text in zip(("inputs", "targets"), pair, strict=True):
                try:
                    encoders[key].encode(text)
                except UserError as error:
                    raise UserError(f"{split} sample {number}: {error}") from None
