"""tensor2tensor's `text_problems`: problems from text to text, and their iterators."""

import glob
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TypedDict

from t2t_keras.data.sources import side_by_side
from t2t_keras.files.text_files import read_lines

from ..base_problem import DatasetSplit, Problem
from ..missing import missing_name

# tensor2tensor has this name here.
from ..text_lines import txt_line_iterator
from . import generator_utils, text_encoder

Sample = Mapping[str, str]

_SAME_LINES = "line n of the second must be the target of line n of the first"


class ShardedSplit(TypedDict):
    """A split, a member of `DatasetSplit`, and its number of shards."""

    split: str
    shards: int


class VocabType:
    """The names of types of vocabularies."""

    CHARACTER = "character"
    SUBWORD = "subwords"
    TOKEN = "tokens"


class Text2TextProblem(Problem):
    """A problem from text to text; users override these members."""

    unusable_reason = ""

    @property
    def approx_vocab_size(self) -> int:
        """Number of tokens in the vocabulary, approximately."""
        return 2**15

    @property
    def vocab_type(self) -> str:
        """A member of `VocabType`."""
        # Problems had these two members until tensor2tensor 1.4.
        if getattr(self, "is_character_level", False):
            return VocabType.CHARACTER
        if not getattr(self, "use_subword_tokenizer", True):
            return VocabType.TOKEN
        return VocabType.SUBWORD

    @property
    def additional_reserved_tokens(self) -> list[str]:
        """Words that are one token wherever spaces surround them."""
        return []

    @property
    def oov_token(self) -> str | None:
        """The unknown token, for `VocabType.TOKEN`."""
        return None

    @property
    def max_samples_for_vocab(self) -> int | None:
        """Number of samples for `generate_text_for_vocab`; None: all."""
        return None

    @property
    def max_subtoken_length(self) -> int | None:
        """The pieces of the vocabulary are shorter; None: they have any length."""
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
    def dataset_splits(self) -> list[ShardedSplit]:
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
        vocab_problem = self.use_vocab_from_other_problem
        if vocab_problem:
            return vocab_problem.vocab_filename
        cls = type(self)
        overrides_file = cls.vocab_file is not Text2TextProblem.vocab_file
        if overrides_file or hasattr(cls, "vocab_name"):
            return self.vocab_file
        if self.vocab_type == VocabType.SUBWORD:
            size = self.approx_vocab_size
            return f"vocab.{self.dataset_filename()}.{size}.{VocabType.SUBWORD}"
        return f"vocab.{self.dataset_filename()}.{VocabType.TOKEN}"

    @property
    def vocab_file(self) -> str:
        """The name of the vocabulary file, in problems for tensor2tensor 1.4."""
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
        """Yields the texts that the vocabulary is trained on."""
        samples = self.generate_samples(data_dir, tmp_dir, DatasetSplit.TRAIN)
        for sample in itertools.islice(samples, self.max_samples_for_vocab or None):
            if self.has_inputs:
                yield sample["inputs"]
            yield sample["targets"]

    def get_or_create_vocab(
        self, data_dir: str, tmp_dir: str | None, force_get: bool = False
    ) -> text_encoder.TextEncoder:
        """Returns the encoder of both sides; a missing vocabulary is trained.

        Args:
            data_dir: the data directory.
            tmp_dir: the directory for downloads.
            force_get: whether the vocabulary must exist.
        """
        if self.vocab_type == VocabType.CHARACTER:
            return text_encoder.ByteTextEncoder()
        path = os.path.join(data_dir, self.vocab_filename)
        if self.vocab_type == VocabType.TOKEN:
            return text_encoder.TokenTextEncoder(path, replace_oov=self.oov_token)
        if force_get or os.path.exists(path):
            return text_encoder.SubwordTextEncoder(path)
        vocab_problem = self.use_vocab_from_other_problem
        if vocab_problem:
            return vocab_problem.get_or_create_vocab(data_dir, tmp_dir)
        size = getattr(self, "targeted_vocab_size", self.approx_vocab_size)
        return generate_vocab(self, data_dir, tmp_dir or "", self.vocab_filename, size)

    def feature_encoders(self, data_dir: str) -> Mapping[str, text_encoder.TextEncoder]:
        """Returns the encoders of "inputs" and "targets"."""
        encoder = self.get_or_create_vocab(data_dir, None, force_get=True)
        return {"inputs": encoder, "targets": encoder}

    def generate_encoded_samples(
        self, data_dir: str, tmp_dir: str, dataset_split: str
    ) -> Iterator[dict[str, object]]:
        """Yields the samples with the ids of their texts."""
        samples = self.generate_samples(data_dir, tmp_dir, dataset_split)
        encoder = self.get_or_create_vocab(data_dir, tmp_dir)
        return text2text_generate_encoded(
            samples,
            encoder,
            inputs_prefix=self.inputs_prefix,
            targets_prefix=self.targets_prefix,
        )


def generate_vocab(
    problem: Text2TextProblem,
    data_dir: str,
    tmp_dir: str,
    vocab_filename: str,
    vocab_size: int,
) -> text_encoder.SubwordTextEncoder:
    """Returns the vocabulary of a problem's texts, which is trained if it is missing.

    Args:
        problem: the problem.
        data_dir: the data directory.
        tmp_dir: the directory for downloads.
        vocab_filename: the name of the file in the data directory.
        vocab_size: number of tokens, approximately.
    """
    return generator_utils.get_or_generate_vocab_inner(
        data_dir,
        vocab_filename,
        vocab_size,
        problem.generate_text_for_vocab(data_dir, tmp_dir),
        problem.max_subtoken_length,
        [*text_encoder.RESERVED_TOKENS, *problem.additional_reserved_tokens],
    )


def _reason(task: str) -> str:
    """Returns the reason why problems of a task cannot be used."""
    return (
        f"it is a problem of {task}, and here a problem has a source text and a target "
        "text; derive it from text_problems.Text2TextProblem and yield 'inputs' and "
        "'targets'"
    )


class Text2SelfProblem(Text2TextProblem):
    """A language model, which cannot be used."""

    unusable_reason = _reason("language modelling, which has targets only")


class ChoppedTextProblem(Text2SelfProblem):
    """A language model of fixed lengths, which cannot be used."""


class Text2ClassProblem(Text2TextProblem):
    """A classification, which cannot be used."""

    unusable_reason = _reason("classification, which has labels")


class TextConcat2ClassProblem(Text2ClassProblem):
    """A classification of several texts, which cannot be used."""


class Text2RealProblem(Text2TextProblem):
    """A regression, which cannot be used."""

    unusable_reason = _reason("regression, which has numbers for targets")


class QuestionAndContext2TextProblem(Text2TextProblem):
    """A problem with a context, which cannot be used."""

    unusable_reason = _reason("questions with a context; join both in the inputs")


class DistributedText2TextProblem(Text2TextProblem):
    """A problem that is generated by several tasks, which cannot be used."""

    unusable_reason = _reason("several tasks of datagen")


class Text2textTmpdir(Text2TextProblem):
    """A problem with four files of texts in `tmp_dir`."""

    TRAIN_FILES = ("inputs.train.txt", "targets.train.txt")
    EVAL_FILES = ("inputs.eval.txt", "targets.eval.txt")

    def generate_samples(
        self, data_dir: str, tmp_dir: str, dataset_split: str
    ) -> Iterator[Sample]:
        """Yields the samples of the files of a split."""
        is_training = dataset_split == DatasetSplit.TRAIN
        inputs, targets = self.TRAIN_FILES if is_training else self.EVAL_FILES
        return text2text_txt_iterator(
            os.path.join(tmp_dir, inputs), os.path.join(tmp_dir, targets)
        )


def txt_line_sharded_iterator(txt_pattern: str) -> Iterator[str]:
    """Yields the lines of all files that match a pattern, such as `train.en-*`."""
    for path in sorted(glob.glob(txt_pattern)):
        yield from txt_line_iterator(path)


def text2text_txt_iterator(
    source_txt_path: str, target_txt_path: str
) -> Iterator[Sample]:
    """Yields samples from the lines of two files.

    Raises:
        UserError: the files do not have the same number of lines.
    """
    paths = (source_txt_path, target_txt_path)
    lines = (read_lines(source_txt_path), read_lines(target_txt_path))
    for inputs, targets in side_by_side(paths, lines, _SAME_LINES):
        yield {"inputs": inputs.strip(), "targets": targets.strip()}


def text2text_txt_sharded_iterator(
    source_txt_pattern: str, target_txt_pattern: str
) -> Iterator[Sample]:
    """Yields samples from the lines of all files that match two patterns.

    Raises:
        UserError: the files do not have the same number of lines.
    """
    paths = (source_txt_pattern, target_txt_pattern)
    lines = (
        txt_line_sharded_iterator(source_txt_pattern),
        txt_line_sharded_iterator(target_txt_pattern),
    )
    for inputs, targets in side_by_side(paths, lines, _SAME_LINES):
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
    vocab: text_encoder.TextEncoder,
    targets_vocab: text_encoder.TextEncoder | None = None,
    has_inputs: bool = True,
    inputs_prefix: str = "",
    targets_prefix: str = "",
) -> Iterator[dict[str, object]]:
    """Yields samples with the ids of their texts, which end with EOS."""
    for sample in sample_generator:
        encoded: dict[str, object] = dict(sample)
        if has_inputs:
            inputs = vocab.encode(inputs_prefix + sample["inputs"])
            inputs.append(text_encoder.EOS_ID)
            encoded["inputs"] = inputs
        targets = (targets_vocab or vocab).encode(targets_prefix + sample["targets"])
        targets.append(text_encoder.EOS_ID)
        encoded["targets"] = targets
        yield encoded


def __getattr__(name: str) -> object:
    return missing_name(__name__, name)
