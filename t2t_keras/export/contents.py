"""What an export holds beside its graph.

t2t_export.json                             the settings, which `ExportSettings` has
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

from t2t_keras.data.records import field
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.option import UserError
from t2t_keras.text.tokenizer import suffix_of

if TYPE_CHECKING:
    import tensorflow as tf

    from t2t_keras.decoding.translator import Translator
    from t2t_keras.export.verify import Verification

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
    """

    version: str
    problem: str
    summary: str
    languages: tuple[str, str] | None
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
