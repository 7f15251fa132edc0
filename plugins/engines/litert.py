"""Export as a LiteRT (TensorFlow Lite) model, from ids to ids, for phones.

The graph has builtin operations only. LiteRT's interpreter and SentencePiece suffice to
run it (`examples/translate_litert.py`). The export is verified with the interpreter,
which the extra `[litert]` installs.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_keras.checking import checked
from t2t_keras.decoding.beam_search import beam_search
from t2t_keras.decoding.ensemble import DecodingModel, Ensemble
from t2t_keras.decoding.graph_engine import ModelTranslator
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.decoding.search_loop import (
    Hypotheses,
    SearchLoop,
    run_steps,
    shape_invariants,
)
from t2t_keras.errors import UserError, require_extra
from t2t_keras.exporting.directory import replaced, require_free, size_of
from t2t_keras.exporting.formats import require_quantization
from t2t_keras.exporting.settings import SETTINGS, make_settings
from t2t_keras.exporting.verify import Output, Verification
from t2t_keras.files.json_files import write_json
from t2t_keras.model.backend import Nest
from t2t_keras.model.layers import SelfAttentionCache
from t2t_keras.text.vocabulary import PAD

from . import LITERT_OPTIONS

MODEL = "model.tflite"
LIMITS = "litert.json"


@checked
def export_litert(
    translator: ModelTranslator,
    export_dir: str | Path,
    *,
    quantization: str | None = None,
    overwrite: bool = False,
    verify: Verification | None = None,
    **options: Any,
) -> int:
    """Writes a model for LiteRT's interpreter, with the files of its tokenizers.

    `model.tflite` has one signature, `serving_default`, for one sentence with n
    outputs: `ids` [1, S] int32, which end in EOS (1) -> `ids` [n, T] int32, padded
    with 0, and `scores` [n] float32. S is at most `max_source_length`, which is in
    `litert.json`. Resize the input to [1, S] before each sentence. If there are fewer
    than n outputs, the remaining scores are -inf.

    The graph contains the translator's beam search for one sentence. Beam size, alpha,
    length penalty, n and limits are constants; there are no constraints or phrases.

    Args:
        translator: the translator to export.
        export_dir: the directory to write.
        quantization: "int8" stores matrices in 8 bits and multiplies in 8 bits, with
            activations rounded at run time (dynamic range); "float16" stores them in
            16 bits; None: float32.
        overwrite: whether to replace an earlier export.
        verify: the sentences with which the export is verified before it appears, by
            the interpreter: exactly in float32, otherwise by the share of identical
            outputs (`Verification.check`); None: it is not verified.
        **options: changes to the translator's `DecodingOptions`.

    Returns:
        The size of the export in bytes.

    Raises:
        UserError: the interpreter is not installed; the model has constraints, or parts
            that LiteRT cannot run; an option is not one of `LITERT_OPTIONS`;
            `export_dir` is not empty, and is not an export or
            `overwrite` is false; or the verification fails.
    """
    require_extra("litert", "--format=litert", "ai_edge_litert")
    require_quantization(quantization, "litert")
    require_free(Path(export_dir), overwrite)
    resolved = _resolve_options(translator, options)
    exact = translator
    if translator.model.hparams.compute_dtype != "float32":
        exact = translator.with_compute_dtype("float32")
    content = _convert(exact.model, resolved, quantization)
    with replaced(Path(export_dir)) as new:
        new.mkdir(parents=True)
        (new / MODEL).write_bytes(content)
        if verify is not None:
            verify.expect(exact, **options)
            verify.check(_search_of(new / MODEL), exact=quantization is None)
        limits = {"max_source_length": resolved.max_source_length}
        write_json(new / LIMITS, limits | {"quantization": quantization})
        settings = make_settings(translator, resolved, quantization, verify)
        write_json(new / SETTINGS, settings)
        translator.save_tokenizers(new)
    return size_of(Path(export_dir))


def _resolve_options(
    translator: ModelTranslator, options: Mapping[str, object]
) -> DecodingOptions:
    """Returns the decoding options of an export.

    Raises:
        UserError: LiteRT cannot compute the model or the options.
    """
    if isinstance(translator.model, Ensemble):
        raise UserError("LiteRT has no ensembles; export a SavedModel")
    for name in sorted(options.keys() - LITERT_OPTIONS):
        raise UserError(f"{name}: LiteRT does not support it; export a SavedModel")
    resolved = translator.choose(**options)
    if resolved.constraint != "none":
        raise UserError(
            f"problem '{translator.problem.name}' has the constraint "
            f"'{resolved.constraint}', which LiteRT cannot compute; export a SavedModel"
        )
    return resolved


def _convert(
    model: DecodingModel, options: DecodingOptions, quantization: str | None
) -> bytes:
    """Returns the model with its search as LiteRT reads it.

    Raises:
        UserError: the model has an operation that LiteRT does not support.
    """

    def translate(ids: tf.Tensor) -> dict[str, tf.Tensor]:
        hypotheses = beam_search(
            model,
            ids,
            beam_size=options.beam_size,
            alpha=options.alpha,
            penalty_formula=options.length_penalty,
            max_length=tf.fill([1], tf.shape(ids)[1] + options.extra_length),
            n_best=options.n_best,
            loop=_LoopOfOneSentence(),
        )
        return {"ids": hypotheses.ids[0], "scores": hypotheses.scores[0]}

    module = tf.Module()
    module.weights = [weight.value for weight in model.weights]
    spec = tf.TensorSpec([1, None], tf.int32, "ids")
    function = tf.function(translate, input_signature=[spec], autograph=False)
    converter = tf.lite.TFLiteConverter.from_concrete_functions(
        [function.get_concrete_function()], module
    )
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    if quantization:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if quantization == "float16":
        converter.target_spec.supported_types = [tf.float16]
    try:
        return converter.convert()
    except Exception as error:  # many types, some with thousands of lines
        raise UserError(
            f"--format=litert: model '{model.hparams.model}' uses an operation that "
            "LiteRT does not support; export a SavedModel"
        ) from error


class _LoopOfOneSentence(SearchLoop):
    """The loop for a batch of one sentence, which has no rows to drop.

    LiteRT's XNNPACK cannot multiply by empty tensors, so the cache of keys and values
    begins with a dummy token that is in no hypothesis.
    """

    def run(
        self,
        model: DecodingModel,
        state: Nest,
        step: Callable[[Nest], Nest],
        results: Callable[[Nest], Hypotheses],
    ) -> Hypotheses:
        """Runs steps until the sentence is done; see `SearchLoop`."""
        shapes = shape_invariants(model, state)
        cache = state.cache
        if all(isinstance(layer.tokens, SelfAttentionCache) for layer in cache.layers):
            row = [[0, 0], [0, 0], [0, 1], [0, 0]]
            layers = []
            for layer in cache.layers:
                tokens = tf.nest.map_structure(lambda x: tf.pad(x, row), layer.tokens)
                layers.append(layer._replace(tokens=tokens))
            # One dummy among the older tokens, and one among the recent ones.
            columns = [[0, 0], [0, 0], [0, 2]]
            positions = tf.pad(cache.positions, columns, constant_values=-1.0)
            state = state._replace(
                cache=cache._replace(positions=positions, layers=tuple(layers))
            )

        def is_running(state: Nest) -> tf.Tensor:
            return ~tf.reduce_all(state.done)

        return results(run_steps(state, step, is_running, shapes))


def _search_of(model_path: Path) -> Callable[[list[list[int]]], list[Output]]:
    """Returns the search of a model as a function for `Verification.check`."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=str(model_path), num_threads=1)
    run = interpreter.get_signature_runner()

    def search(sources: list[list[int]]) -> list[Output]:
        outputs = []
        for ids in sources:
            result = run(ids=np.array([ids], np.int32))
            best = result["ids"][0]  # [T]
            outputs.append(
                Output(tuple(best[best != PAD].tolist()), float(result["scores"][0]))
            )
        return outputs

    return search
