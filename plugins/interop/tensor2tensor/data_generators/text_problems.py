"""tensor2tensor's `text_problems`: problems from text to text, and their iterators."""

import glob
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from t2t_keras.data.lines import read_lines
from t2t_keras.data.parallel_files import side_by_side
from t2t_keras.data.text_files import decoded_lines, open_binary, readable
from t2t_keras.errors import UserError
from t2t_keras.problem import Problem as OurProblem

from ..missing import missing_name
from . import generator_utils, text_encoder
from .problem import DatasetSplit, Problem

Sample = Mapping[str, Any]

_ONE_LINE_EACH = "line by line, one must have the targets of the other"


class VocabType:
    """The kinds of vocabularies."""

    CHARACTER = "character"
    SUBWORD = "subwords"
    TOKEN = "tokens"


class Text2TextProblem(Problem):
    """A problem as users of tensor2tensor define it: by overriding these members."""

    @property
    def approx_vocab_size(self) -> int:
        """Number of tokens in the vocabulary, approximately."""
        return 2**15

    @property
    def vocab_type(self) -> str:
        """A member of `VocabType`."""
        # As problems said until tensor2tensor 1.4.
        if getattr(self, "is_character_level", False):
            return VocabType.CHARACTER
        if not getattr(self, "use_subword_tokenizer", True):
            return VocabType.TOKEN
        return VocabType.SUBWORD

    @property
    def additional_reserved_tokens(self) -> list[str]:
        """Words that are one token wherever spaces are around them."""
        return []

    @property
    def oov_token(self) -> str | None:
        """The token for those outside the vocabulary, with `VocabType.TOKEN`."""
        return None

    @property
    def max_samples_for_vocab(self) -> int | None:
        """Number of samples for `generate_text_for_vocab`; None: all."""
        return None

    @property
    def max_subtoken_length(self) -> int | None:
        """Has no effect."""
        return 200

    @property
    def has_inputs(self) -> bool:
        """Whether samples have inputs; only such problems can be used."""
        return True

    @property
    def inputs_prefix(self) -> str:
        """A text before the inputs of samples."""
        return ""

    @property
    def targets_prefix(self) -> str:
        """A text before the targets of samples."""
        return ""

    @property
    def is_generate_per_split(self) -> bool:
        """Whether `generate_samples` is called for each split.

        Otherwise it is called for training only, and its samples are dealt out to the
        shards of all splits, one after the other.
        """
        return not getattr(self, "use_train_shards_for_dev", False)

    @property
    def dataset_splits(self) -> list[dict[str, Any]]:
        """The splits, each with its number of shards."""
        return [
            {"split": DatasetSplit.TRAIN, "shards": getattr(self, "num_shards", 100)},
            {"split": DatasetSplit.EVAL, "shards": getattr(self, "num_dev_shards", 1)},
        ]

    @property
    def packed_length(self) -> int | None:
        """Has no effect."""
        return None

    @property
    def use_vocab_from_other_problem(self) -> "Text2TextProblem | None":
        """The problem whose vocabulary is used."""
        return None

    @property
    def vocab_filename(self) -> str:
        """The name of the vocabulary file in `data_dir`."""
        if other := self.use_vocab_from_other_problem:
            return other.vocab_filename
        kind = type(self)
        is_older = kind.vocab_file is not Text2TextProblem.vocab_file
        if is_older or hasattr(kind, "vocab_name"):
            return self.vocab_file
        if self.vocab_type == VocabType.SUBWORD:
            size = self.approx_vocab_size
            return f"vocab.{self.dataset_filename()}.{size}.{VocabType.SUBWORD}"
        return f"vocab.{self.dataset_filename()}.{VocabType.TOKEN}"

    @property
    def vocab_file(self) -> str:
        """The name of the vocabulary file, as until tensor2tensor 1.4."""
        if not hasattr(self, "vocab_name"):
            return self.vocab_filename
        size = getattr(self, "targeted_vocab_size", self.approx_vocab_size)
        return f"{self.vocab_name}.{size}"

    def generate_samples(
        self, data_dir: str, tmp_dir: str, dataset_split: str
    ) -> Iterable[Sample]:
        """Yields samples, each with the texts "inputs" and "targets".

        Args:
            data_dir: the data directory.
            tmp_dir: the directory of `--tmp_dir`, for downloads.
            dataset_split: a member of `DatasetSplit`.
        """
        raise NotImplementedError

    def generate_text_for_vocab(self, data_dir: str, tmp_dir: str) -> Iterator[str]:
        """Yields the texts on which the vocabulary is trained."""
        samples = self.generate_samples(data_dir, tmp_dir, DatasetSplit.TRAIN)
        for sample in itertools.islice(samples, self.max_samples_for_vocab):
            if self.has_inputs:
                yield sample["inputs"]
            yield sample["targets"]

    def get_or_create_vocab(
        self, data_dir: str, tmp_dir: str | None, force_get: bool = False
    ) -> Any:
        """Returns the encoder of both sides, and trains its vocabulary if it is absent.

        Args:
            data_dir: the data directory.
            tmp_dir: the directory for downloads.
            force_get: whether the vocabulary must be there.
        """
        if self.vocab_type == VocabType.CHARACTER:
            return text_encoder.ByteTextEncoder()
        path = os.path.join(data_dir, self.vocab_filename)
        if self.vocab_type == VocabType.TOKEN:
            return text_encoder.TokenTextEncoder(path, replace_oov=self.oov_token)
        if force_get or os.path.exists(path):
            return text_encoder.SubwordTextEncoder(path)
        if other := self.use_vocab_from_other_problem:
            return other.get_or_create_vocab(data_dir, tmp_dir)
        return generator_utils.get_or_generate_vocab_inner(
            data_dir,
            self.vocab_filename,
            getattr(self, "targeted_vocab_size", self.approx_vocab_size),
            self.generate_text_for_vocab(data_dir, tmp_dir or ""),
            reserved_tokens=[
                *text_encoder.RESERVED_TOKENS,
                *self.additional_reserved_tokens,
            ],
        )

    def feature_encoders(self, data_dir: str) -> dict[str, Any]:
        """Returns the encoders of "inputs" and "targets"."""
        encoder = self.get_or_create_vocab(data_dir, None, force_get=True)
        return {"inputs": encoder, "targets": encoder}

    def generate_encoded_samples(
        self, data_dir: str, tmp_dir: str, dataset_split: str
    ) -> Iterator[dict[str, Any]]:
        """Yields the samples with the ids of their texts."""
        samples = self.generate_samples(data_dir, tmp_dir, dataset_split)
        encoder = self.get_or_create_vocab(data_dir, tmp_dir)
        return text2text_generate_encoded(
            samples,
            encoder,
            inputs_prefix=self.inputs_prefix,
            targets_prefix=self.targets_prefix,
        )

    def to_problem(self) -> OurProblem:
        """Returns the problem in our terms.

        Raises:
            UserError: it cannot be used; the message says why.
        """
        from ..ported_problem import ported

        return ported(self)


class _WithoutSources(Text2TextProblem):
    """A kind of problems that cannot be used."""

    _kind = ""

    def to_problem(self) -> OurProblem:
        """Raises `UserError`."""
        raise UserError(
            f"it is a problem of {self._kind}, and here a problem has a source text "
            "and a target text; derive it from text_problems.Text2TextProblem and "
            "yield 'inputs' and 'targets'"
        )


class Text2SelfProblem(_WithoutSources):
    """A language model, which cannot be used."""

    _kind = "language modelling, which has targets only"


class ChoppedTextProblem(Text2SelfProblem):
    """A language model of fixed lengths, which cannot be used."""


class Text2ClassProblem(_WithoutSources):
    """A classification, which cannot be used."""

    _kind = "classification, which has labels"


class TextConcat2ClassProblem(Text2ClassProblem):
    """A classification of several texts, which cannot be used."""


class Text2RealProblem(_WithoutSources):
    """A regression, which cannot be used."""

    _kind = "regression, which has numbers for targets"


class QuestionAndContext2TextProblem(_WithoutSources):
    """A problem with a context, which cannot be used."""

    _kind = "questions with a context; join both in the inputs"


class DistributedText2TextProblem(_WithoutSources):
    """A problem that is generated by several tasks, which cannot be used."""

    _kind = "several tasks of datagen"


class Text2textTmpdir(Text2TextProblem):
    """The problem whose texts are four files in `tmp_dir`."""

    TRAIN_FILES = ("inputs.train.txt", "targets.train.txt")
    EVAL_FILES = ("inputs.eval.txt", "targets.eval.txt")

    def generate_samples(
        self, data_dir: str, tmp_dir: str, dataset_split: str
    ) -> Iterator[Sample]:
        """Yields the samples of the files of a split."""
        is_training = dataset_split == DatasetSplit.TRAIN
        names = self.TRAIN_FILES if is_training else self.EVAL_FILES
        inputs, targets = (os.path.join(tmp_dir, name) for name in names)
        return text2text_txt_iterator(inputs, targets)


def txt_line_iterator(txt_path: str) -> Iterator[str]:
    """Yields the lines of a file, without white space at their ends."""
    with readable(txt_path), open_binary(txt_path) as file:
        for line in decoded_lines(file, txt_path):
            yield line.strip()


def txt_line_sharded_iterator(txt_pattern: str) -> Iterator[str]:
    """Yields the lines of all files of a pattern, such as `train.en-*`."""
    for path in sorted(glob.glob(txt_pattern)):
        yield from txt_line_iterator(path)


def text2text_txt_iterator(
    source_txt_path: str, target_txt_path: str
) -> Iterator[Sample]:
    """Yields samples from the lines of two files.

    Raises:
        UserError: they have different numbers of lines.
    """
    paths = source_txt_path, target_txt_path
    lines = read_lines(source_txt_path), read_lines(target_txt_path)
    for inputs, targets in side_by_side(paths, lines, _ONE_LINE_EACH):
        yield {"inputs": inputs.strip(), "targets": targets.strip()}


def text2text_txt_sharded_iterator(
    source_txt_pattern: str, target_txt_pattern: str
) -> Iterator[Sample]:
    """Yields samples from the lines of all files of two patterns.

    Raises:
        UserError: there are different numbers of lines.
    """
    paths = source_txt_pattern, target_txt_pattern
    lines = (
        txt_line_sharded_iterator(source_txt_pattern),
        txt_line_sharded_iterator(target_txt_pattern),
    )
    for inputs, targets in side_by_side(paths, lines, _ONE_LINE_EACH):
        yield {"inputs": inputs, "targets": targets}


def text2text_txt_tab_iterator(txt_path: str) -> Iterator[Sample]:
    """Yields samples from the lines of a file that have a tab."""
    for line in txt_line_iterator(txt_path):
        inputs, tab, targets = line.partition("\t")
        if tab:
            yield {"inputs": inputs.strip(), "targets": targets.strip()}


def text2self_txt_iterator(txt_path: str) -> Iterator[Sample]:
    """Yields samples with targets only."""
    for line in txt_line_iterator(txt_path):
        yield {"targets": line}


def text2text_generate_encoded(
    sample_generator: Iterable[Sample],
    vocab: Any,
    targets_vocab: Any = None,
    has_inputs: bool = True,
    inputs_prefix: str = "",
    targets_prefix: str = "",
) -> Iterator[dict[str, Any]]:
    """Yields samples with the ids of their texts, EOS last."""
    for sample in sample_generator:
        encoded = dict(sample)
        if has_inputs:
            encoded["inputs"] = vocab.encode(inputs_prefix + sample["inputs"])
            encoded["inputs"].append(text_encoder.EOS_ID)
        targets = (targets_vocab or vocab).encode(targets_prefix + sample["targets"])
        encoded["targets"] = targets
        encoded["targets"].append(text_encoder.EOS_ID)
        yield encoded


def __getattr__(name: str) -> Any:
    return missing_name(__name__, name)
