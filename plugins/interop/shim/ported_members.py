"""The members that a user's problem overrides: read, refused, or without effect."""

import contextlib

from t2t_keras.errors import UserError
from t2t_keras.problem import Split

from ..t2t.tokens import ByteTokenizer
from .encoders import EOS_ID
from .hparams import named_set
from .problems import DatasetSplit, Problem, Text2TextProblem, VocabType
from .translate import TranslateProblem

_PACKAGE = __name__.rpartition(".")[0]

SPLITS: dict[str, Split] = {
    DatasetSplit.TRAIN: "train",
    DatasetSplit.EVAL: "dev",
    DatasetSplit.TEST: "test",
}

# Our tokenizers by the type of the vocabulary.
_TOKENIZERS = {
    VocabType.CHARACTER: "t2t_bytes",
    VocabType.SUBWORD: "t2t_subword",
    VocabType.TOKEN: "t2t_tokens",
}

# A problem that overrides one of these members makes its vocabulary itself.
_VOCABULARY_MEMBERS = (
    *("feature_encoders", "get_or_create_vocab", "generate_text_for_vocab"),
    *("vocab_data_files", "vocab_filename", "vocab_file", "vocab_name"),
    *("use_vocab_from_other_problem", "generate_encoded_samples", "generator"),
)

# These members have no effect, for the reason given.
MEMBERS_WITHOUT_EFFECT = {
    **dict.fromkeys(
        ("packed_length", "packed_spacing"),
        "rows are packed in training, with `--hparams bucketing=packed`",
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
    "num_training_examples": "the examples are counted",
    "skip_random_fraction_when_training": "no examples are skipped",
    "export_assets": "an export contains the vocabulary",
}

# These members make or change examples in other ways than by their texts.
_REFUSED_MEMBERS = (
    *("generate_data", "preprocess", "dataset", "input_fn", "decode_example"),
    *("maybe_reverse_features", "maybe_copy_features", "maybe_reverse_and_copy"),
    *("serving_input_fn", "make_estimator_input_fn", "tpu_batch_size_per_shard"),
)


def is_overridden(original: object, member: str) -> bool:
    """Returns whether a user's class defines a member of an object."""
    for cls in type(original).__mro__:
        if member in vars(cls):
            return not cls.__module__.startswith(_PACKAGE)
    return False


def makes_vocabulary(original: Text2TextProblem) -> bool:
    """Returns whether a problem makes its vocabulary itself."""
    return any(is_overridden(original, member) for member in _VOCABULARY_MEMBERS)


def require_usable(original: Problem) -> Text2TextProblem:
    """Returns the problem if it can be used here.

    Raises:
        UserError: it cannot; the message names the member.
    """
    if original.unusable_reason or not isinstance(original, Text2TextProblem):
        raise UserError(original.unusable_reason)
    for member in _REFUSED_MEMBERS:
        if is_overridden(original, member):
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
    _require_same_examples(original)
    _require_features(original)
    _require_samples(original)
    return original


def _require_same_examples(original: Text2TextProblem) -> None:
    """Raises UserError if examples are changed when they are read."""
    if not is_overridden(original, "preprocess_example"):
        return
    example = {"inputs": [3, EOS_ID], "targets": [4, EOS_ID]}
    result: object = None
    with contextlib.suppress(Exception):
        hparams = named_set("transformer_base")
        result = original.preprocess_example(dict(example), "train", hparams)
    if result != example:
        raise UserError(
            "it defines preprocess_example, which changes examples when they are read; "
            "change the texts in generate_samples"
        )


def _require_features(original: Text2TextProblem) -> None:
    """Raises UserError if examples have other features than inputs and targets."""
    if not is_overridden(original, "example_reading_spec"):
        return
    names = set[str]()
    with contextlib.suppress(Exception):
        names = set(original.example_reading_spec()[0])
    if names != {"inputs", "targets"}:
        raise UserError(
            "it defines example_reading_spec with other features than inputs and "
            "targets, which are the only ones here; leave them out"
        )


def _require_samples(original: Text2TextProblem) -> None:
    """Raises UserError if the problem has no samples."""
    for member in ("generate_samples", "generate_encoded_samples", "generator"):
        if is_overridden(original, member):
            return
    if not hasattr(original, "source_data_files"):
        raise UserError("it has no samples; define generate_samples")
    if not isinstance(original, TranslateProblem):
        raise UserError(
            "it defines source_data_files and no generate_samples; derive it from "
            "translate.TranslateProblem, which reads those files"
        )
    if not is_overridden(original, "source_data_files"):
        raise UserError(
            "it has no samples; define source_data_files or generate_samples"
        )


def tokenizer_name(original: Text2TextProblem) -> str:
    """Returns the value of `Problem.tokenizer` for the vocabulary type.

    Raises:
        UserError: there is no such type.
    """
    vocab_type = original.vocab_type
    if vocab_type not in _TOKENIZERS:
        raise UserError(
            f"vocab_type must be one of {', '.join(_TOKENIZERS)}, not {vocab_type!r}"
        )
    return _TOKENIZERS[vocab_type]


def default_vocab_size(original: Text2TextProblem) -> int:
    """Returns the size of the vocabulary without `--vocab_size`.

    Raises:
        UserError: the size that the problem asks for is not a number.
    """
    if original.vocab_type == VocabType.CHARACTER:
        return ByteTokenizer().vocab_size
    member = "approx_vocab_size"
    older_member = "targeted_vocab_size"
    if is_overridden(original, older_member) and not is_overridden(original, member):
        member = older_member
    size = getattr(original, member)
    if not isinstance(size, int | float) or size != int(size):
        raise UserError(
            f"{member} must be a number, not {size!r:.80}; write @property above it"
        )
    return int(size)


def num_shards(original: Text2TextProblem) -> dict[Split, int]:
    """Returns the number of shards of each split.

    Raises:
        UserError: `dataset_splits` has another form.
    """
    shards: dict[Split, int] = {}
    for description in original.dataset_splits:
        try:
            split = SPLITS[description["split"]]
            shards[split] = int(description["shards"])
        except (KeyError, TypeError, ValueError):
            raise UserError(
                "dataset_splits must have dictionaries such as {'split': "
                f"DatasetSplit.TRAIN, 'shards': 10}}, not {description!r:.80}"
            ) from None
    return shards
