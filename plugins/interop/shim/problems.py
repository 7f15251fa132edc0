"""The base classes of tensor2tensor's problems, and the names that problems mention.

They are in tensor2tensor's `problem`, `text_problems`, `modalities` and `metrics`.
"""

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TypedDict, TypeVar

from .encoders import (
    EOS_ID,
    RESERVED_TOKENS,
    ByteTextEncoder,
    SubwordTextEncoder,
    TextEncoder,
    TokenTextEncoder,
    get_or_generate_vocab_inner,
)
from .files import Sample, text2text_txt_iterator
from .hparams import HParams
from .missing import missing

Example = TypeVar("Example")

# tensor2tensor's numbers of spaces and tasks have no meaning here.
SpaceID = missing("data_generators.problem.SpaceID")
TaskID = missing("data_generators.problem.TaskID")


class Metrics:
    """The names of metrics."""

    ACC = "accuracy"
    ACC_PER_SEQ = "accuracy_per_sequence"
    ACC_TOP5 = "accuracy_top5"
    APPROX_BLEU = "approx_bleu_score"
    EDIT_DISTANCE = "edit_distance"
    NEG_LOG_PERPLEXITY = "neg_log_perplexity"
    ROUGE_2_F = "rouge_2_fscore"
    ROUGE_L_F = "rouge_L_fscore"
    WORD_ERROR_RATE = "word_error_rate"


class ModalityType:
    """The names of types of features."""

    CLASS_LABEL = "class_label"
    IDENTITY = "identity"
    REAL_L2_LOSS = "real_l2_loss"
    SYMBOL = "symbol"


class DatasetSplit:
    """The names of splits."""

    TRAIN = "train"
    EVAL = "eval"
    TEST = "test"


class Problem:
    """The base class of tensor2tensor's problems.

    Only problems that derive from `text_problems.Text2TextProblem` can be used.

    Attributes:
        name: the registered name.
        unusable_reason: a sentence that says why it cannot be used; "": it can.
    """

    name = ""
    unusable_reason = (
        "it is not a problem from text to text; derive it from "
        "text_problems.Text2TextProblem and define generate_samples"
    )

    def __init__(self, was_reversed: bool = False, was_copy: bool = False) -> None:
        self._was_reversed = was_reversed
        self._was_copy = was_copy
        self._encoders: Mapping[str, TextEncoder] | None = None

    @property
    def was_reversed(self) -> bool:
        """Whether inputs and targets are swapped."""
        return self._was_reversed

    def dataset_filename(self) -> str:
        """Returns the beginning of the names of its files: its name."""
        return self.name

    def feature_encoders(self, data_dir: str) -> Mapping[str, TextEncoder]:
        """Returns the encoders of "inputs" and "targets"."""
        raise NotImplementedError

    def get_feature_encoders(self, data_dir: str) -> Mapping[str, TextEncoder]:
        """Returns `feature_encoders`, which are made only once."""
        if self._encoders is None:
            self._encoders = self.feature_encoders(data_dir)
        return self._encoders

    def example_reading_spec(self) -> tuple[dict[str, object], None]:
        """Returns the names of the features of records."""
        return {"inputs": None, "targets": None}, None

    def preprocess_example(
        self, example: Example, mode: object, hparams: object
    ) -> Example:
        """Returns the example."""
        return example

    def hparams(self, defaults: object, model_hparams: object) -> None:
        """Does nothing, since the vocabularies are known from the data."""

    def eval_metrics(self) -> list[str]:
        """Returns no metrics, since training computes the loss and BLEU."""
        return []

    def max_length(self, model_hparams: HParams) -> int:
        """Returns the maximum number of tokens on each side of a training example."""
        return model_hparams.max_length or model_hparams.batch_size


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
    ) -> TextEncoder:
        """Returns the encoder of both sides; a missing vocabulary is trained.

        Args:
            data_dir: the data directory.
            tmp_dir: the directory for downloads.
            force_get: whether the vocabulary must exist.
        """
        if self.vocab_type == VocabType.CHARACTER:
            return ByteTextEncoder()
        path = os.path.join(data_dir, self.vocab_filename)
        if self.vocab_type == VocabType.TOKEN:
            return TokenTextEncoder(path, replace_oov=self.oov_token)
        if force_get or os.path.exists(path):
            return SubwordTextEncoder(path)
        vocab_problem = self.use_vocab_from_other_problem
        if vocab_problem:
            return vocab_problem.get_or_create_vocab(data_dir, tmp_dir)
        size = getattr(self, "targeted_vocab_size", self.approx_vocab_size)
        return generate_vocab(self, data_dir, tmp_dir or "", self.vocab_filename, size)

    def feature_encoders(self, data_dir: str) -> Mapping[str, TextEncoder]:
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
) -> SubwordTextEncoder:
    """Returns the vocabulary of a problem's texts, which is trained if it is missing.

    Args:
        problem: the problem.
        data_dir: the data directory.
        tmp_dir: the directory for downloads.
        vocab_filename: the name of the file in the data directory.
        vocab_size: number of tokens, approximately.
    """
    return get_or_generate_vocab_inner(
        data_dir,
        vocab_filename,
        vocab_size,
        problem.generate_text_for_vocab(data_dir, tmp_dir),
        problem.max_subtoken_length,
        [*RESERVED_TOKENS, *problem.additional_reserved_tokens],
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


class Text2ClassProblem(Text2TextProblem):
    """A classification, which cannot be used."""

    unusable_reason = _reason("classification, which has labels")


class QuestionAndContext2TextProblem(Text2TextProblem):
    """A problem with a context, which cannot be used."""

    unusable_reason = _reason("questions with a context; join both in the inputs")


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


def text2text_generate_encoded(
    sample_generator: Iterable[Sample],
    vocab: TextEncoder,
    targets_vocab: TextEncoder | None = None,
    has_inputs: bool = True,
    inputs_prefix: str = "",
    targets_prefix: str = "",
) -> Iterator[dict[str, object]]:
    """Yields samples with the ids of their texts, which end with EOS."""
    for sample in sample_generator:
        encoded: dict[str, object] = dict(sample)
        if has_inputs:
            inputs = vocab.encode(inputs_prefix + sample["inputs"])
            inputs.append(EOS_ID)
            encoded["inputs"] = inputs
        targets = (targets_vocab or vocab).encode(targets_prefix + sample["targets"])
        targets.append(EOS_ID)
        encoded["targets"] = targets
        yield encoded
