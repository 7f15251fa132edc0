"""What an export holds beside its graph.

t2t_export.json                             the settings, which `ExportSettings` has
model_card.md                               the same and the run's records, for people
assets.extra/source.spm, target.spm         the vocabularies (or .subwords)
assets.extra/tf_serving_warmup_requests     requests that TensorFlow Serving replays

`assets.extra` is the folder that every loader of SavedModels ignores and that tools
copy.
"""

import dataclasses
import importlib.metadata
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.errors import UserError
from t2t_keras.model_card import MODEL_CARD, model_card
from t2t_keras.text.load import suffix_of
from t2t_keras.wire_format import field

if TYPE_CHECKING:
    import tensorflow as tf

    from t2t_keras.decoding.translator import Translator
    from t2t_keras.serving.verify import Verification

SETTINGS = "t2t_export.json"
EXTRA = "assets.extra"
WARM_UP = f"{EXTRA}/tf_serving_warmup_requests"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportSettings:
    """The settings of an export, stored in `t2t_export.json`.

    Attributes:
        version: the version of t2t_keras that wrote the export.
        problem: the name of the problem.
        summary: its summary.
        languages: the codes of source and target; None: the problem has none.
        nests_outputs: see `TextForm`.
        hparams: the hyper-parameters.
        parameters: number of weights.
        vocabularies: side -> the path of its vocabulary in the export.
        vocab_sizes: side -> number of tokens.
        decoding: the decoding options of the export, without those of sampling.
        per_request: the names of those that the signature `translate` takes.
        quantization: the dtype to which the weights were rounded; None: they were not.
        ids_only: whether the export has no tokenizers, so that it maps ids to ids.
        signatures: the names of the signatures.
        verified: for how many sentences the export was compared with the run.
        identical: for how many of them both have the same output.
        run: the records of the training, see `runs.run_records`; may be empty.
    """

    version: str
    problem: str
    summary: str
    languages: tuple[str, str] | None
    nests_outputs: bool
    hparams: dict[str, Any]
    parameters: int
    vocabularies: dict[str, str]
    vocab_sizes: dict[str, int]
    decoding: dict[str, Any]
    per_request: tuple[str, ...]
    quantization: str | None
    ids_only: bool
    signatures: tuple[str, ...]
    verified: int
    identical: int
    run: dict[str, Any]

    @classmethod
    def of(
        cls,
        translator: "Translator",
        options: DecodingOptions,
        signatures: Sequence[str],
        *,
        quantization: str | None,
        ids_only: bool,
        verify: "Verification | None",
        run: Mapping[str, Any],
    ) -> Self:
        """Returns the settings with which a translator is exported."""
        problem = translator.problem
        tokenizers = {
            "source": translator.source_tokenizer,
            "target": translator.target_tokenizer,
        }
        return cls(
            version=importlib.metadata.version("t2t_keras"),
            problem=problem.name,
            summary=problem.summary,
            languages=problem.languages,
            nests_outputs=problem.text_form.nests_outputs,
            hparams=dataclasses.asdict(translator.model.hparams),
            parameters=translator.model.count_params(),
            vocabularies={
                side: f"{EXTRA}/{side}{suffix_of(tokenizer)}"
                for side, tokenizer in tokenizers.items()
            },
            vocab_sizes={s: it.vocab_size for s, it in tokenizers.items()},
            decoding=options.recorded(),
            per_request=tuple(DecodingOptions.names("is_served")),
            quantization=quantization,
            ids_only=ids_only,
            signatures=tuple(sorted(signatures)),
            verified=len(verify.texts) if verify else 0,
            identical=verify.identical if verify else 0,
            run=dict(run),
        )

    @classmethod
    def load(cls, export_dir: str | Path) -> Self | None:
        """Returns the settings of an export; None for one of an earlier version.

        Raises:
            UserError: the file is damaged.
        """
        path = Path(export_dir) / SETTINGS
        if not path.exists():
            return None
        known = {field.name for field in dataclasses.fields(cls)}
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
            settings = cls(**{k: v for k, v in fields.items() if k in known})
        except (AttributeError, TypeError, ValueError) as error:
            raise UserError(
                f"{path} is not as it was written: {error}; export the model again"
            ) from None
        languages = settings.languages
        return dataclasses.replace(
            settings,
            languages=None if languages is None else (languages[0], languages[1]),
            per_request=tuple(settings.per_request),
            signatures=tuple(settings.signatures),
        )


def write_contents(
    path: Path,
    settings: ExportSettings,
    translator: "Translator",
    warm_up: Mapping[str, Mapping[str, "tf.Tensor"]],
) -> None:
    """Writes the files beside the graph.

    Args:
        path: the directory of the export.
        settings: the settings.
        translator: the translator, which has the tokenizers.
        warm_up: signature -> its inputs, for the requests that TensorFlow Serving runs
            before a model is available.
    """
    import tensorflow as tf

    (path / EXTRA).mkdir()
    translator.source_tokenizer.save(path / settings.vocabularies["source"])
    translator.target_tokenizer.save(path / settings.vocabularies["target"])
    with tf.io.TFRecordWriter(str(path / WARM_UP)) as writer:
        for signature, inputs in warm_up.items():
            writer.write(prediction_log(signature, inputs))
    text = json.dumps(dataclasses.asdict(settings), indent=2, ensure_ascii=False)
    (path / SETTINGS).write_text(f"{text}\n", encoding="utf-8")
    files = {
        SETTINGS: "these settings",
        **{path: f"{side} vocabulary" for side, path in settings.vocabularies.items()},
        WARM_UP: "requests that TensorFlow Serving replays at start-up",
    }
    facts = dataclasses.asdict(settings) | {"format": "savedmodel", "files": files}
    _write(path / MODEL_CARD, model_card(settings.run, facts))


def write_other_card(
    path: Path,
    export_format: str,
    translator: "Translator",
    options: DecodingOptions,
    files: Mapping[str, str],
    **facts: Any,
) -> None:
    """Writes the model card of an export that is no SavedModel.

    Args:
        path: the card.
        export_format: "ctranslate2" or "hf-marian".
        translator: the translator that is exported.
        options: its options; the export has their limits of lengths alone.
        files: the files of the export, and what they have; the first two are the
            vocabularies of source and target.
        **facts: "quantization", "verify" and "run", as in `ExportSettings.of`.
    """
    settings = ExportSettings.of(translator, options, (), ids_only=False, **facts)
    limits = ("max_source_length", "extra_length")
    values = dataclasses.asdict(settings) | {
        "format": export_format,
        "files": files,
        "vocabularies": dict(zip(("source", "target"), files, strict=False)),
        "decoding": {name: settings.decoding[name] for name in limits},
        "per_request": (),
    }
    _write(path, model_card(settings.run, values))


def _write(path: Path, card: str) -> None:
    path.write_text(card, encoding="utf-8", errors="replace")


def prediction_log(signature: str, inputs: Mapping[str, "tf.Tensor"]) -> bytes:
    """Returns the bytes of a `tensorflow.serving.PredictionLog` with one request.

    The messages are TensorFlow Serving's, whose Python package
    (`tensorflow-serving-api`) is not needed to write them: all fields in use here are
    messages and strings. Their numbers, from `prediction_log.proto`, `predict.proto`
    and `model.proto`:

        PredictionLog   6 predict_log: PredictLog
        PredictLog      1 request: PredictRequest
        PredictRequest  1 model_spec: ModelSpec, 2 inputs: map<string, TensorProto>
        ModelSpec       3 signature_name: string

    An entry of a map is a message with 1 key and 2 value.

    Args:
        signature: the name of the signature.
        inputs: its inputs by name.
    """
    import tensorflow as tf

    request = field(1, field(3, signature.encode()))
    for name, tensor in sorted(inputs.items()):
        value = tf.make_tensor_proto(tensor).SerializeToString(deterministic=True)
        request += field(2, field(1, name.encode()) + field(2, value))
    return field(6, field(1, request))
