"""SavedModel: strings to n-best strings, in TensorFlow Serving, C++ or Python."""

from pathlib import Path
from typing import Any

import tensorflow as tf

from t2t_keras.decoding.beam_search import Hypotheses, beam_search
from t2t_keras.decoding.constraint import AllOf
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.decoding.scoring import score_targets
from t2t_keras.decoding.translator import Translator
from t2t_keras.errors import UserError
from t2t_keras.serving.export_dir import replaced, require_free
from t2t_keras.serving.text_form_graph import (
    PlainTextGraph,
    TextFormGraph,
    TreesGraph,
)
from t2t_keras.text.graph_ids import CPU
from t2t_keras.text.punctuation_graph import PunctuationGraph
from t2t_keras.text.tokenizer import EOS, PAD

# The characters that Python's `str.strip` removes.
_BLANK = r"[\t-\r\x1c-\x20\x{85}\p{Z}]*"


def export_saved_model(
    translator: Translator,
    export_dir: str | Path,
    *,
    overwrite: bool = False,
    **options: Any,
) -> int:
    r"""Writes a model with its tokenizers and its search as one SavedModel.

    It needs TensorFlow and TensorFlow Text and nothing of this package:

        import tensorflow as tf
        import tensorflow_text  # has the operations of the tokenizers

        served = tf.saved_model.load(export_dir)
        outputs = served.signatures["serving_default"](tf.constant(["A house."]))

    (Keep `served` alive while its signatures are in use: it holds the weights.) The
    signatures, with B sentences and n outputs for each:

    - `serving_default`: `texts` [B] -> `texts` [B, n], `scores` [B, n], and
      `is_truncated` [B]: whether a text has more tokens than `max_source_length`, and
      all others are left out; with the options given here;
    - `translate`: `texts` [B] and the scalars `beam_size`, `n_best` (int32, at most
      `beam_size`) and `alpha` (float32) -> the same;
    - `translate_ids`: `ids` [B, S] int32, each row ending in EOS (1) and padded with 0,
      or all 0 -> `ids` [B, n, T], `scores` [B, n], `lengths` [B, n]; no operation of
      TensorFlow Text in it;
    - `score`: `texts` [B], `targets` [B] -> `log_prob` [B], `tokens` [B], and
      `is_truncated` [B] as above; of a problem of trees the targets are symbols, as
      `text.linearise` writes them;
    - `options`: nothing -> `beam_size`, `n_best` and `alpha` as given here.

    Impossible inputs raise `tf.errors.InvalidArgumentError`, which names the input.

    The outputs are those of `Translator.n_best` before the problem's `postprocess`,
    which is Python and cannot be part of a graph. Where there are fewer than n, the
    places left over have the empty text and score -inf.

    Of a problem of trees the outputs are bracketed trees with the words in them, as
    `text.linearise.restore_text` makes them. The texts are words with white space
    between them, or raw sentences with the option `raw`. The search is constrained to
    trees (`decoding.brackets`), since nothing in the graph repairs an output;
    `translate_ids` decodes the source to count its words.

    The directory appears whole or not at all: it is written as `.NAME.incomplete`
    beside it. TensorFlow Serving wants it to be named by a number: `models/ende/1`.

    Args:
        translator: what to export.
        export_dir: the directory to write.
        overwrite: replace an earlier export.
        **options: changes to the translator's `DecodingOptions`.

    Returns:
        The size in bytes.

    Raises:
        UserError: `export_dir` is not empty, and is no export or not to be
            overwritten; or options are impossible, or trees are to be exported without
            their constraint.
    """
    chosen = translator.choose(**options)
    if chosen.sampling:
        raise UserError("a SavedModel decodes by beam search; leave out sampling")
    has_trees = translator.problem.output == "trees"
    if has_trees and chosen.constraint != "brackets":
        raise UserError(
            "a SavedModel of trees needs the constraint 'brackets'; give no other"
        )
    require_free(Path(export_dir), overwrite)

    module = _Served(translator, chosen)
    with replaced(Path(export_dir)) as new:
        tf.saved_model.save(module, str(new), signatures=module.signatures())
        return sum(path.stat().st_size for path in new.rglob("*") if path.is_file())


_IDS = tf.TensorSpec([None, None], tf.int32)
_INTEGER = tf.TensorSpec([], tf.int32)
_NUMBER = tf.TensorSpec([], tf.float32)


class _Served(tf.Module):
    """What is saved: weights, tokenizers, and functions of tensors."""

    def __init__(self, translator: Translator, options: DecodingOptions) -> None:
        super().__init__(name="t2t_keras")
        # Saved are the variables and tables that are reachable from here: the bare
        # variables, each once, and nothing of the Keras model, which the translator
        # (no trackable object) hides.
        self._translator = translator
        self._options = options
        self._weights = [variable.value for variable in translator.model.variables]
        self._source_tokenizer = translator.source_tokenizer.graph()
        self._target_tokenizer = translator.target_tokenizer.graph()
        self._punctuation = PunctuationGraph()
        self._form: TextFormGraph = PlainTextGraph(self._target_tokenizer)
        if translator.problem.output == "trees":
            self._form = TreesGraph(
                translator.problem.symbols,
                translator.target_tokenizer,
                options.raw,
                self._punctuation,
            )

    def signatures(self) -> dict[str, Any]:
        """Returns the functions to serve, by name."""
        named = {
            tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY: self.serve,
            "translate": self.translate,
            "translate_ids": self.translate_ids,
            "score": self.score,
            "options": self.options,
        }
        return {name: f.get_concrete_function() for name, f in named.items()}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "texts")])
    def serve(self, texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """Texts to n-best texts, with the options of the export."""
        options = self._options
        return self.translate(texts, options.beam_size, options.n_best, options.alpha)

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.string, "texts"),
            tf.TensorSpec([], tf.int32, "beam_size"),
            tf.TensorSpec([], tf.int32, "n_best"),
            tf.TensorSpec([], tf.float32, "alpha"),
        ]
    )
    def translate(
        self,
        texts: tf.Tensor,
        beam_size: tf.Tensor,
        n_best: tf.Tensor,
        alpha: tf.Tensor,
    ) -> dict[str, tf.Tensor]:
        """Texts to n-best texts."""
        # A blank text becomes a row without tokens, whose output is empty.
        is_blank = tf.strings.regex_full_match(texts, _BLANK)
        texts = self._form.source_texts(texts)
        ids, is_truncated = self._encode_sources(texts)
        ids = tf.where(is_blank[:, None], PAD, ids)
        kinds = tf.zeros_like(ids)
        if self._options.constraint == "brackets":
            kinds = self._word_kinds(texts)
        found = self._search(ids, kinds, beam_size, n_best, alpha)
        outputs = self._form.outputs(texts, found.ids)
        return {
            "texts": outputs,
            "scores": found.scores,
            "is_truncated": is_truncated & ~is_blank,
        }

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32, "ids")])
    def translate_ids(self, ids: tf.Tensor) -> dict[str, tf.Tensor]:
        """Pieces to n-best pieces, with the options of the export."""
        options = self._options
        with tf.control_dependencies(self._ids_assertions(ids)):
            ids = tf.identity(ids)
        kinds = tf.zeros_like(ids)
        if options.constraint == "brackets":
            texts = self._source_tokenizer.decode(ids)
            kinds = self._word_kinds(texts)
        found = self._search(
            ids, kinds, options.beam_size, options.n_best, options.alpha
        )
        return {"ids": found.ids, "scores": found.scores, "lengths": found.lengths}

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.string, "texts"),
            tf.TensorSpec([None], tf.string, "targets"),
        ]
    )
    def score(self, texts: tf.Tensor, targets: tf.Tensor) -> dict[str, tf.Tensor]:
        """Texts and their translations to log-probabilities."""
        are_pairs = _require(
            tf.size(texts) == tf.size(targets),
            "texts and targets must be of equal length: line by line they are pairs",
        )
        with tf.control_dependencies([are_pairs]):
            texts, targets = tf.identity(texts), tf.identity(targets)
        target_ids = self._target_tokenizer.encode(targets).to_tensor(PAD)
        source_ids, is_truncated = self._encode_sources(self._form.source_texts(texts))
        scores = score_targets(self._translator.model, source_ids, target_ids)
        return {
            "log_prob": scores.log_probs,
            "tokens": scores.lengths,
            "is_truncated": is_truncated,
        }

    @tf.function(input_signature=[])
    def options(self) -> dict[str, tf.Tensor]:
        """The options of the export that `translate` takes as inputs."""
        return {
            "beam_size": tf.constant(self._options.beam_size),
            "n_best": tf.constant(self._options.n_best),
            "alpha": tf.constant(self._options.alpha),
        }

    @tf.function(input_signature=[_IDS, _IDS, _INTEGER, _INTEGER, _NUMBER])
    def _search(
        self,
        ids: tf.Tensor,
        kinds: tf.Tensor,
        beam_size: tf.Tensor,
        n_best: tf.Tensor,
        alpha: tf.Tensor,
    ) -> Hypotheses:
        """Beam search with the limits of the translator."""
        options = self._options
        assertions = [
            _require(beam_size >= 1, "beam_size must be at least 1"),
            _require(n_best >= 1, "n_best must be at least 1"),
            _require(n_best <= beam_size, "n_best must be at most beam_size"),
            _require(tf.math.is_finite(alpha), "alpha must be a finite number"),
        ]
        with tf.control_dependencies(assertions):
            ids, beam_size, n_best, alpha = map(
                tf.identity, (ids, beam_size, n_best, alpha)
            )
        lengths = tf.math.count_nonzero(ids, axis=1, dtype=tf.int32)
        limits = tf.maximum(lengths + options.extra_length, 1)
        limits, constraints = self._translator.restrict(
            options, kinds, limits, options.min_length
        )
        return beam_search(
            self._translator.model,
            ids,
            beam_size=beam_size,
            alpha=alpha,
            max_length=tf.where(lengths == 0, 0, limits),
            n_best=n_best,
            constraint=AllOf(constraints),
        )

    def _word_kinds(self, texts: tf.Tensor) -> tf.Tensor:
        """Returns what the constraint "brackets" has to know of the words of texts."""
        with tf.device(CPU):
            return self._punctuation.kinds(tf.strings.split(texts, " "))

    def _ids_assertions(self, ids: tf.Tensor) -> list[tf.Operation]:
        """Returns what must hold for the source ids [B, S] of a user."""
        vocab_size = self._translator.source_tokenizer.vocab_size
        lengths = tf.math.count_nonzero(ids, axis=1, dtype=tf.int32)
        is_token = tf.sequence_mask(lengths, tf.shape(ids)[1])
        after_end = tf.pad(ids, [[0, 0], [1, 0]], constant_values=EOS)
        last = tf.gather(after_end, lengths, axis=1, batch_dims=1)
        return [
            _require(
                (ids >= 0) & (ids < vocab_size),
                f"ids must be from 0 to {vocab_size - 1}, as the vocabulary has",
            ),
            _require(
                (ids != PAD) == is_token,
                f"ids {PAD} (padding) may only follow the last token of a row",
            ),
            _require(
                last == EOS,
                f"each row of ids must end in {EOS} (EOS), then {PAD} (padding)",
            ),
        ]

    def _encode_sources(self, texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns ids [B, S], cut where there are too many, and where that is: [B]."""
        most = self._options.max_source_length - 1
        without_end = self._source_tokenizer.encode(texts)[:, :-1]
        end = tf.fill([tf.size(texts), 1], EOS)
        ids = tf.concat([without_end[:, :most], end], axis=1).to_tensor(PAD)
        return ids, tf.cast(without_end.row_lengths(), tf.int32) > most


def _require(condition: tf.Tensor, message: str) -> tf.Operation:
    """Returns the operation that raises the message unless all of a tensor is true."""
    return tf.debugging.Assert(tf.reduce_all(condition), [message])
