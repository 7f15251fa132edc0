"""Export as a SavedModel, from strings to n-best strings.

TensorFlow Serving, C++ and Python can run it. Next to the graph are

- `t2t_export.json`: the settings, see `SavedModelSettings`;
- `assets.extra/source.spm`, `target.spm` (or `.subwords`): the vocabularies;
- `assets.extra/tf_serving_warmup_requests`: requests that TensorFlow Serving replays.

Every loader of SavedModels ignores `assets.extra`, and tools copy it.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401  (the tokenizers' operations)

from t2t_keras.checking import checked
from t2t_keras.data.tfrecord import field
from t2t_keras.decoding.graph_engine import ModelTranslator
from t2t_keras.decoding.options import DecodingOptions, constraint_name
from t2t_keras.errors import UserError, first_line
from t2t_keras.exporting.directory import (
    replaced,
    require_free,
    require_intact,
    size_of,
)
from t2t_keras.exporting.saved_model_engine import SavedModelEngine
from t2t_keras.exporting.served_graph import ServedGraph
from t2t_keras.exporting.settings import (
    SETTINGS,
    ExportedTranslator,
    TextProcessorSettings,
    make_settings,
)
from t2t_keras.exporting.verify import Verification, search_of, verify_text_processor
from t2t_keras.files.json_files import write_json
from t2t_keras.problem import Problem
from t2t_keras.tensorflow_import import diverted_stderr
from t2t_keras.text.tokenizer import load_tokenizer

EXTRA = "assets.extra"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SavedModelSettings(TextProcessorSettings):
    """The settings of a SavedModel.

    Attributes:
        ids_only: whether the graph has no tokenizers.
    """

    ids_only: bool


def load_translator(path: Path) -> ExportedTranslator:
    """Loads a SavedModel that `export_saved_model` wrote.

    Raises:
        UserError: `t2t export` did not write it, or it maps ids to ids; or a file is
            damaged; or only the graph can encode texts: the problem is not registered,
            or a constraint reads the text of a source, which the ids of the vocabulary
            do not have.
    """
    require_intact(path)
    settings = SavedModelSettings.read(path)
    if settings.ids_only:
        raise UserError(
            f"{path} maps ids to ids; call its signatures with "
            "TensorFlow, or export the model with --format=savedmodel"
        )
    text_processor = settings.make_text_processor(path)
    engine = SavedModelEngine(
        load_saved_model(path),
        settings.problem,
        text_processor,
        load_tokenizer(next((path / EXTRA).glob("source.*"))),
        load_tokenizer(next((path / EXTRA).glob("target.*"))),
        DecodingOptions.of_recorded(settings.decoding, path / SETTINGS),
    )
    engine.check(engine.options)
    return ExportedTranslator(engine, settings, engine.request_options)


def load_saved_model(path: Path) -> tf.Module:
    """Loads a SavedModel; its vocabularies are silent as in `sentence_piece_op`.

    Raises:
        UserError: TensorFlow cannot load it.
    """
    try:
        with diverted_stderr():
            return tf.saved_model.load(str(path))
    except Exception as error:  # which one depends on the damage
        raise UserError(
            f"TensorFlow cannot load {path}: "
            f"{first_line(error) or type(error).__name__}; copy or export the model "
            "again"
        ) from None


WARM_UP = f"{EXTRA}/tf_serving_warmup_requests"
_WARM_UP_TEXTS = 4


@checked
def export_saved_model(
    translator: ModelTranslator,
    export_dir: str | Path,
    *,
    ids_only: bool = False,
    quantization: Literal["int8", "float16", "bfloat16"] | None = None,
    overwrite: bool = False,
    verify: Verification | None = None,
    **options: Any,
) -> int:
    r"""Writes a model with its tokenizers and beam search as one SavedModel.

    To run it takes TensorFlow and TensorFlow Text, and not this package:

        import tensorflow as tf
        import tensorflow_text  # has the operations of the tokenizers

        served = tf.saved_model.load(export_dir)
        outputs = served.signatures["serving_default"](tf.constant(["A house."]))

    (Keep `served` alive while its signatures are in use: it holds the weights.) These
    are the signatures, for B sentences with n outputs each:

    - `serving_default`: `texts` [B] -> `texts` [B, n], `scores` [B, n], and
      `is_truncated` [B], whether a text was truncated to `max_source_length` tokens,
      and not split (see `Translator`). It uses the options that are given here.
    - `translate`: `texts` [B] and the options of `DecodingOptions` that have
      `is_served` -> the same as `serving_default`. Numbers are scalars or [B]:
      `beam_size`, `n_best` (at most `beam_size`) and `min_length` (int32), `alpha`
      (float32). Phrases are strings, for all texts or for each, with the first axis 1
      or B: `glossary` [B, any, 2] and `forbidden` [B, any]; empty ones are padding.
    - `translate_ids`: `ids` [B, S] int32, each row ending in EOS (1) and padded with 0,
      or all 0 -> `ids` [B, n, T], `scores` [B, n], `lengths` [B, n].
    - `search_ids`: `ids` and the options of `translate` -> the same.
    - `score`: `texts` [B], `targets` [B] -> `log_prob` [B], `tokens` [B], the targets'
      `ids` [B, T], `token_log_probs` [B, T] (both padded with 0), and `is_truncated`
      [B]; here texts and targets that are too long are always truncated. The targets
      have the form of the training data's, which for some problems differs from the
      outputs (`TextProcessor.preprocess_target`).
    - `score_ids`: `ids` [B, S], `targets` [B, T], padded with 0 -> `log_prob` [B],
      `tokens` [B], `token_log_probs` [B, T]. EOS counts where it is given.
    - `options`: no inputs -> the options of `translate` as given here.

    With `ids_only`, there are `translate_ids` (also as `serving_default`),
    `search_ids`, `score_ids` and `options` only, and phrases are fixed. The graph
    has no operation of TensorFlow Text, so that any program with TensorFlow can load
    it. Otherwise the whole graph needs TensorFlow Text, whichever signature is called.

    The parts of all texts that are split are decoded in one batch, so it takes memory
    in proportion to the texts of a request.

    Impossible inputs raise `tf.errors.InvalidArgumentError`, which names the input.

    Rows with equal options are searched together. The outputs equal the results of
    `Translator.n_best`, but several may have the same text. Where there are fewer than
    the largest n, the other places have the empty text and score -inf. The graph
    repairs only the output of a text for which nothing could be generated: a problem
    whose text processor repairs outputs must be exported with its constraint.

    With `jit_compile="true"`, XLA compiles the search of requests without phrases, on
    the machine that runs the export.

    With `quantization`, matrices are stored in 16 or 8 bits, and the graph restores
    them in float32 at the beginning of every call (`StoredWeight`).

    The directory appears only when it is complete: it is written to `.NAME.incomplete`
    next to it. TensorFlow Serving requires a number as its name: `models/ende/1`.

    Args:
        translator: the translator to export.
        export_dir: the directory to write.
        ids_only: whether the graph has no tokenizers.
        quantization: the dtype to which matrices are rounded; None: float32.
        overwrite: whether to replace an earlier export.
        verify: the sentences with which `search_ids` is verified before the export
            appears: exactly if the model computes in float32, otherwise by the share
            of identical outputs (`Verification.check`). With `quantization`, it is
            verified so with the translator whose weights are rounded, and then by that
            share with the translator itself. None: it is not verified.
        **options: changes to the translator's `DecodingOptions`.

    Returns:
        The size of the export in bytes.

    Raises:
        UserError: `export_dir` is not empty, and it is no export or `overwrite` is
            false; or options are impossible, or the problem's constraint is left out
            although its text processor repairs outputs; or `ids_only` does not go with
            them or with the problem; or the verification fails.
    """
    resolved = translator.choose(**options)
    if resolved.jit_compile == "auto":  # An export may go to another machine.
        resolved = dataclasses.replace(resolved, jit_compile="false")
    _require_possible(translator.problem, resolved, ids_only)
    path = Path(export_dir)
    require_free(path, overwrite)
    graph = ServedGraph(translator, resolved, quantization, ids_only)
    signatures = graph.signatures()
    with replaced(path) as new:
        tf.saved_model.save(graph, str(new), signatures)
        if verify is not None:
            search = search_of(_engine(new, translator, resolved), resolved)
            exact = translator.model.hparams.compute_dtype == "float32"
            if quantization:
                verify.expect(_with_weights(translator, graph.weights()), **options)
                verify.check(search, exact)
            verify.expect(translator, **options)
            verify.check(search, exact and not quantization)
            if not ids_only:
                processor = translator.problem.text_processor
                pairs = verify.texts, verify.outputs
                verify_text_processor(processor, *pairs, resolved.raw)
        settings = make_settings(translator, resolved, quantization, verify)
        write_json(new / SETTINGS, settings | {"ids_only": ids_only})
        (new / EXTRA).mkdir()
        translator.save_tokenizers(new / EXTRA)
        texts = verify.texts[-_WARM_UP_TEXTS:] if verify else []
        with tf.io.TFRecordWriter(str(new / WARM_UP)) as writer:
            for signature, inputs in graph.warm_up(texts).items():
                writer.write(prediction_log(signature, inputs))
    return size_of(path)


def _require_possible(
    problem: Problem, options: DecodingOptions, ids_only: bool
) -> None:
    """Refuses options with which a SavedModel cannot decode.

    Raises:
        UserError: there is one.
    """
    if options.sampling:
        raise UserError("a SavedModel decodes by beam search; leave out sampling")
    constraint = constraint_name(problem)
    if problem.text_processor.repairs_outputs and options.constraint != constraint:
        raise UserError(
            f"constraint: a SavedModel of problem '{problem.name}' needs "
            f"'{constraint}', for nothing in it repairs an output; give no other"
        )
    is_constrained = options.constraint == constraint != "none"
    if ids_only and (is_constrained or options.needs_texts or options.raw):
        raise UserError(
            "ids_only: constraint, glossary, protect and raw need texts, which an "
            "export of ids does not have; leave out one of them"
        )


def prediction_log(signature: str, inputs: Mapping[str, tf.Tensor]) -> bytes:
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
    request = field(1, field(3, signature.encode()))
    for name, tensor in sorted(inputs.items()):
        value = tf.make_tensor_proto(tensor).SerializeToString(deterministic=True)
        request += field(2, field(1, name.encode()) + field(2, value))
    return field(6, field(1, request))


def _with_weights(
    translator: ModelTranslator, weights: Sequence[np.ndarray]
) -> ModelTranslator:
    """Returns a copy of a translator with other weights."""
    copy = translator.with_compute_dtype(translator.model.hparams.compute_dtype)
    for variable, value in zip(copy.model.weights, weights, strict=True):
        variable.assign(value)
    return copy


def _engine(
    path: Path, translator: ModelTranslator, options: DecodingOptions
) -> SavedModelEngine:
    """Returns the engine of an export.

    It makes the batches of the run: in 16 bits, rounding depends on them.
    """
    return SavedModelEngine(
        load_saved_model(path),
        translator.problem.name,
        translator.text_processor,
        translator.source_tokenizer,
        translator.target_tokenizer,
        options,
    )
