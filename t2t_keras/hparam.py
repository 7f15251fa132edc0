"""HParams: all hyper-parameters of a model and its training."""

import contextlib
import dataclasses
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from t2t_keras.checking import checked
from t2t_keras.definitions import Registry
from t2t_keras.entry_points import plugin_names
from t2t_keras.errors import UserError, did_you_mean, short_repr
from t2t_keras.files.json_files import read_json
from t2t_keras.options import (
    check_options,
    option,
    option_names,
    parse_value,
    require_known,
    split_pairs,
)

# Other names of hyper-parameters that `HParams.parse` accepts. Plugins that register
# models fill it.
FIELD_ALIASES: dict[str, str] = {}

# The factors whose product is the learning rate, under tensor2tensor's names.
SCHEDULE_FACTORS = (
    *("constant", "linear_warmup", "rsqrt_decay", "rsqrt_normalized_decay"),
    "rsqrt_hidden_size",
)
# Further factors, see `registry.register_schedule_factor`: functions of the
# hyper-parameters and the step.
OTHER_SCHEDULE_FACTORS: Registry[Callable[[Any, Any], Any]] = Registry(
    "schedule_factors", "schedule factors"
)
OPTIMIZERS: tuple[str, ...] = ("adam", "adamw")  # plugins add others
# Further optimizers, see `registry.register_optimizer`. The entry points of the group
# `t2t_keras.optimizers` are optimizers and register nothing.
OTHER_OPTIMIZERS: Registry[Callable[[Any, Any], Any]] = Registry("", "optimizers")
PAPER_SCHEDULE = "linear_warmup*rsqrt_decay*rsqrt_hidden_size"

GUIDED_HEAD = 1  # the head that guided alignment trains, from 1

# By exact lengths, by tensor2tensor's rule, in a few shapes, or in packed rows.
Bucketing = Literal["auto", "exact", "t2t", "static", "packed"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class HParams:
    """Hyper-parameters; the defaults are the paper's base model.

    Section numbers refer to "Attention Is All You Need" (arXiv:1706.03762).
    Impossible combinations raise `UserError` at construction. A model with further
    hyper-parameters has a subclass, see `registry.register_model`.
    """

    model: str = option("transformer", "the registered model (`t2t list`)")

    # Architecture (3.1 to 3.3).
    num_layers: int = option(6, "layers of the encoder, and of the decoder (N)", ge=1)
    d_model: int = option(512, "width of the model (D)", ge=1)
    d_ff: int = option(2048, "inner width of the feed-forward networks (F)", ge=1)
    num_heads: int = option(8, "attention heads (H)", ge=1)
    d_k: int = option(
        0, "width of a head's queries and keys; 0: d_model / num_heads", ge=0
    )
    d_v: int = option(0, "width of a head's values; 0: d_model / num_heads", ge=0)
    norm: Literal["post", "pre"] = option(
        "post", "layer norm after each residual sum (the paper), or before sub-layers"
    )

    # Kinds of attention that the paper compares with its own (3.2.1, 4).
    attention: Literal["scaled", "unscaled", "additive"] = option(
        "scaled", "how a query is compared with the keys"
    )
    attention_window: int = option(
        0,
        "neighbours r that self-attention sees (in the encoder r / 2 on each side); "
        "0: all",
        ge=0,
    )

    # Embeddings and positions (3.4, 3.5).
    share_embeddings: bool = option(
        True, "embeddings and softmax use one matrix for each vocabulary"
    )
    position: Literal["sinusoidal", "learned"] = option(
        "sinusoidal", "positional encodings: the paper's, or learned ones"
    )
    max_positions: int = option(1024, "rows of the table of learned positions", ge=1)

    # Regularization (5.4).
    dropout: float = option(
        0.1,
        "dropout on sub-layer outputs and on the sums of embeddings",
        ge=0,
        lt=1,
        changeable=True,
    )
    attention_dropout: float = option(
        0.0,
        "dropout on attention weights (tensor2tensor: 0.1)",
        ge=0,
        lt=1,
        changeable=True,
    )
    ffn_dropout: float = option(
        0.0,
        "dropout on the inner activations (tensor2tensor: 0.1)",
        ge=0,
        lt=1,
        changeable=True,
    )
    label_smoothing: float = option(
        0.1, "probability of all other tokens", ge=0, lt=1, changeable=True
    )

    # Word alignment (Chen et al., 2016; Garg et al., EMNLP 2019).
    guided_alignment: float = option(
        0.0,
        "weight of the cross-entropy between an attention head and the given word "
        "alignments (Garg et al.: 0.05); 0: none",
        ge=0,
    )

    # Optimizer and schedule (5.3).
    learning_rate: float = option(1.0, "factor of the schedule", ge=0, changeable=True)
    schedule: str = option(PAPER_SCHEDULE, "product of factors (a*b)", changeable=True)
    warmup_steps: int = option(
        4000, "steps until the learning rate reaches its peak", ge=1, changeable=True
    )
    optimizer: str = option(
        "adam", "kind of optimizer: adam, adamw, or one of a plugin, such as adafactor"
    )
    adam_beta1: float = option(
        0.9, "decay of Adam's mean of the gradients", ge=0, lt=1, changeable=True
    )
    adam_beta2: float = option(
        0.98, "decay of Adam's mean of their squares", ge=0, lt=1, changeable=True
    )
    adam_epsilon: float = option(
        1e-9, "added to Adam's denominator", gt=0, changeable=True
    )
    weight_decay: float = option(
        0.0,
        "AdamW's weight decay of matrices, times the learning rate",
        ge=0,
        changeable=True,
    )
    clip_norm: float = option(
        0.0, "largest norm of the gradient; 0: no clipping", ge=0, changeable=True
    )
    ema_decay: float = option(
        0.0, "decay of the weights' moving average; 0: none", ge=0, lt=1
    )

    # Batches and length of training (5.1, 5.2).
    batch_tokens: int = option(
        25_000, "tokens in a batch on each side, of all replicas, with padding", ge=1
    )
    bucketing: Bucketing = option(
        "auto",
        "batches by the exact lengths of the pairs, by tensor2tensor's rule (t2t), of "
        "at most twelve shapes (static), or of one shape whose rows hold several pairs "
        "(packed); auto: a new run takes packed on GPUs and exact on CPUs",
    )
    train_steps: int = option(100_000, "total number of updates", ge=1)

    # Changes of training pairs, drawn again each time a pair is read.
    word_dropout: float = option(
        0.0, "probability of leaving out a word of a source", ge=0, lt=1
    )
    case_noise: float = option(
        0.0, "probability of a source in lower, upper or title case", ge=0, le=1
    )
    bpe_dropout: float = option(
        0.0, "probability of skipping each merge, on both sides", ge=0, lt=1
    )

    # Arithmetic. Variables, layer norm, softmax and loss are always float32.
    compute_dtype: Literal["float32", "bfloat16", "float16"] = option(
        "float32", "dtype of matrix products"
    )
    jit_compile: bool | Literal["auto"] = option(
        "auto",
        "compile the update with XLA (needs bucketing 'static' or 'packed'); auto: a "
        "new run does on GPUs if all its batches have one shape ('packed')",
        changeable=True,
    )

    def __post_init__(self) -> None:
        check_options(type(self), vars(self), "hparams: ")
        if self.guided_alignment and self.changes_pairs:
            raise UserError(
                "hparams: guided_alignment excludes word_dropout, case_noise and "
                "bpe_dropout, which would change the words that are linked"
            )
        if self.attention_window and self.attention != "scaled":
            raise UserError(
                f"hparams: attention_window needs attention 'scaled', not "
                f"'{self.attention}'; change one of them"
            )
        if self.jit_compile is True and self.bucketing in ("exact", "t2t"):
            raise UserError(
                f"hparams: jit_compile needs bucketing 'static' or 'packed', not "
                f"'{self.bucketing}': XLA compiles the model for every shape of a batch"
            )
        self._check_optimizer()
        if not (self.d_k and self.d_v) and self.d_model % self.num_heads:
            raise UserError(
                f"hparams: d_model {self.d_model} is not divisible by num_heads "
                f"{self.num_heads}; change one of them or set d_k and d_v"
            )
        if self.d_model % 2 and self.position != "learned":
            raise UserError(
                f"hparams: d_model {self.d_model} must be even for sinusoids"
            )

    def _check_optimizer(self) -> None:
        for factor in self.schedule.split("*"):
            if factor in SCHEDULE_FACTORS:
                continue
            if OTHER_SCHEDULE_FACTORS.find(factor) is None:
                names = (*SCHEDULE_FACTORS, *OTHER_SCHEDULE_FACTORS.definitions())
                raise UserError(
                    f"hparams: schedule has no factor '{factor}'; it is a product "
                    f"(a*b) of {', '.join(names)}; others are registered by a file of "
                    "--usr_dir"
                )
        optimizers = (*OPTIMIZERS, *OTHER_OPTIMIZERS.definitions())
        if self.optimizer not in optimizers:  # plugins are looked up only if needed
            optimizers = (*optimizers, *plugin_names("optimizers"))
        if self.optimizer not in optimizers:
            raise UserError(
                f"hparams: optimizer must be one of {', '.join(optimizers)}, not "
                f"'{self.optimizer}'; others are registered by a file of --usr_dir"
            )
        if self.weight_decay and self.optimizer != "adamw":
            raise UserError(
                f"hparams: weight_decay needs optimizer 'adamw', not "
                f"'{self.optimizer}'; change one of them"
            )
        if self.optimizer == "adamw" and not self.weight_decay:
            raise UserError(
                "hparams: optimizer 'adamw' needs weight_decay above 0, such as 0.01; "
                "without it take 'adam'"
            )

    @property
    def changes_pairs(self) -> bool:
        """Whether training pairs are changed when they are read."""
        return bool(self.word_dropout or self.case_noise or self.bpe_dropout)

    @property
    def decoder_layers(self) -> int:
        """Number of layers of the decoder."""
        return self.num_layers

    @property
    def key_size(self) -> int:
        """Size d_k of a head's queries and keys."""
        return self.d_k or self.d_model // self.num_heads

    @property
    def value_size(self) -> int:
        """Size d_v of a head's values."""
        return self.d_v or self.d_model // self.num_heads

    @property
    def alignment_layer(self) -> int:
        """The decoder layer, from 1, whose attention to the source aligns words.

        It is the penultimate layer, which aligns best in Garg et al. (EMNLP 2019), or
        the only one. Guided alignment trains its head `GUIDED_HEAD`.
        """
        return max(self.decoder_layers - 1, 1)

    def override(self, /, **changes: object) -> "HParams":
        """Returns a copy with some fields changed.

        Fields may also have tensor2tensor's names (`FIELD_ALIASES`), as `hidden_size`.
        If `model` changes to one with other hyper-parameters, new ones have their
        defaults, and those that it does not have are left out.

        Raises:
            UserError: for an unknown field, a value of the wrong type, or an
                impossible combination.
        """
        cls = type(self)
        model = changes.get("model", self.model)
        if not isinstance(model, str) or model != self.model:
            cls = _hparams_class(model)
        names = {field.name for field in dataclasses.fields(cls)}
        values = {name: value for name, value in vars(self).items() if name in names}
        changed: dict[str, Any] = {}
        for key, value in changes.items():
            name = _field_name(cls, key)
            if name in changed:
                keys = [key for key in changes if _field_name(cls, key) == name]
                raise UserError(
                    f"hparams: {' and '.join(keys)} are the same; leave out one"
                )
            changed[name] = value
        # `_convert` has a sentence for each name of another model.
        unknown = {k: v for k, v in changed.items() if _model_with(k) is None}
        require_known(cls, unknown, "hparams: ", "hparams")
        for name, value in changed.items():
            changed[name] = _convert(cls, name, value)
        return cls(**values | changed)

    @checked
    def parse(self, overrides: str) -> "HParams":
        """Returns a copy changed by `"dropout=0.2,num_layers=4"`.

        Fields may also have tensor2tensor's names (`FIELD_ALIASES`), as `hidden_size`.

        Raises:
            UserError: as `override`, and for text that is not `key=value` pairs.
        """
        return self.override(**split_pairs(overrides, "--hparams: "))

    @classmethod
    @checked
    def from_dict(cls, values: Mapping[str, object]) -> "HParams":
        """Builds hparams, of the class for `values["model"]`, from their fields.

        Raises:
            UserError: for an unknown field or a value of the wrong type.
        """
        return cls().override(**values)

    @classmethod
    def load(cls, path: Path) -> "HParams":
        """Reads hparams from the `hparams.json` of a run.

        Raises:
            UserError: the file is missing or damaged, or as `override`.
        """
        values = read_json(path, otherwise="start another run")
        if values is None:
            raise UserError(f"there is no {path}; restore it")
        try:
            return cls.from_dict(values)
        except UserError as error:
            raise UserError(f"{path}: {error}") from None

    @classmethod
    def descriptions(cls) -> dict[str, str]:
        """Returns the description of each field by name."""
        return {field.name: field.metadata["help"] for field in dataclasses.fields(cls)}

    @classmethod
    def field_value(cls, name: str, value: object) -> tuple[str, object]:
        """Returns the name of a field, and a value in its type and within its limits.

        Args:
            name: the name, which may be tensor2tensor's (`FIELD_ALIASES`).
            value: the value, perhaps as text.

        Raises:
            UserError: there is no such field, or it cannot have the value.
        """
        field = _field_name(cls, name)
        converted = _convert(cls, field, value)
        check_options(cls, {field: converted}, "hparams: ")
        return field, converted

    def difference(self, changed: "HParams") -> dict[str, tuple[object, object]]:
        """Returns the fields that differ: name -> (value here, value there)."""
        values = dataclasses.asdict(self)
        changed_values = dataclasses.asdict(changed)
        changes = {}
        for name in values | changed_values:
            pair = (values.get(name), changed_values.get(name))
            if pair[0] != pair[1]:
                changes[name] = pair
        return changes


class Model(NamedTuple):
    """A registered model.

    Attributes:
        build: returns the `Transformer` for hyper-parameters, the size of the source
            vocabulary, and the size of the target's or None where both share one.
        hparams: the class of its hyper-parameters.
    """

    build: Callable[[Any, int, int | None], Any]
    hparams: type[HParams]


MODELS: Registry[Model] = Registry("models")


def _hparams_class(model: object) -> type[HParams]:
    """Returns the class of a model's hyper-parameters.

    Raises:
        UserError: no such model is registered, or it cannot be built.
    """
    if not isinstance(model, str):
        raise UserError(f"hparams: model must be text, not {short_repr(model)}")
    definition = MODELS.find(model)
    if definition is None:
        raise UserError(
            f"hparams: there is no model '{model}'; install the package that registers "
            f"it, or give its --usr_dir{did_you_mean(model, MODELS.definitions())}"
        )
    try:
        return definition.create(model).hparams
    except UserError as error:
        raise UserError(f"hparams: {error}") from None


def _model_with(name: str) -> str | None:
    """Returns the registered model whose hyper-parameter this is.

    Returns:
        None if no model has it, or every model.
    """
    if name in HParams.descriptions():
        return None
    for model, definition in MODELS.definitions().items():
        with contextlib.suppress(UserError):  # a model that cannot be built
            if name in inspect.get_annotations(definition.create(model).hparams):
                return model
    return None


# Neither the model nor its batches nor the optimizer's state depend on these fields, so
# a training can resume with other values, see `train(change_settings=True)`.
CHANGEABLE_FIELDS = frozenset(option_names(HParams, "changeable"))


def _field_name(cls: type[HParams], name: str) -> str:
    """Returns the name of a field that may be given by another one."""
    if name in cls.descriptions():
        return name
    MODELS.definitions()  # fill `FIELD_ALIASES`
    return FIELD_ALIASES.get(name, name)


def _convert(cls: type[HParams], name: str, value: object) -> Any:
    """Converts a field's value, perhaps given as text, to the field's type."""
    if name not in cls.descriptions() and (model := _model_with(name)):
        raise UserError(f"hparams: '{name}' needs model={model}")
    return parse_value(cls, name, value, "hparams: ", "hparams")
