"""Small models for the tests of decoding, and plain loops to hold them against."""

import copy
import itertools

import keras
import numpy as np
import tensorflow as tf

from t2t_keras.decoding.beam_search import beam_search
from t2t_keras.decoding.graph_engine import ModelTranslator
from t2t_keras.hparam import HParams
from t2t_keras.model import build_model
from t2t_keras.model.layers import LearnedPositions
from t2t_keras.problem import Problem
from t2t_keras.text.sentence_piece import SentencePieceTokenizer

PAD = 0
EOS = 1

# What the tokenizers of these models are trained on.
LINES = [
    "the old house stands near the river .",
    "a dog runs .",
    "",
    "the woman with the green hat reads a very long book about the old river .",
    "naïve café 😀👍 — 「日本語」",
    "a",
    " \t\u3000",
    "the dog reads a book .",
    "the old dog .",
]

# Short enough that the longest line is split.
SHORT = {"max_source_length": 24}

# Texts with parts that outputs keep, and the kinds of these parts.
KINDS = ("url", "email", "markup", "number", "symbol", "unknown")
HARD = {
    "the dog reads http://a.b/c?d=1 .": ["http://a.b/c?d=1"],
    "a <b>dog</b> runs 😀 .": ["<b>", "</b>", "😀"],
    "": [],
    "mail me@x.org , or 12 35 ! 中国 ©": ["me@x.org", "12", "35", "中国", "©"],
    "the old dog .": [],
}

# Arguments that are not lists of texts, and the messages.
NOT_TEXTS = [
    ("A man.", r"must be a list of strings, not one string; pass \[text\]"),
    (b"A man.", "must be a list of strings, not one string"),
    (None, "must be a list of strings, not NoneType"),
    (3, "must be a list of strings, not int"),
    (["a", None], r"\[1\] must be a string \(str\), not NoneType"),
    ([3], r"\[0\] must be a string \(str\), not int"),
    ([["a"]], r"\[0\] must be a string \(str\), not list"),
    ([b"a"], r"\[0\] must be a string \(str\), not bytes"),
]


def text_translator(folder, name="", **hparams):
    """A translator of texts with random weights; its vocabulary lies in the folder."""
    SentencePieceTokenizer.train(LINES * 2, folder / "vocab.spm", 340)
    tokenizer = SentencePieceTokenizer(folder / "vocab.spm")
    problem = Problem(name=name, summary="", extra_length=6)
    model = transformer(tokenizer.vocab_size, **hparams)
    return ModelTranslator(problem, model, tokenizer, tokenizer)


def with_attributes(translator, **attributes):
    """A translator whose engine has other attributes, and the same traced graphs."""
    changed = copy.copy(translator)
    changed.engine = copy.copy(translator.engine)
    for name, value in attributes.items():
        setattr(changed.engine, name, value)
    return changed


class TableModel:
    """Logits looked up by sentence, position and last piece: [B, T, V, V].

    The source is [B, 1]: the number of the sentence in the table. The last piece is
    read from a history kept in the cache, so that a cache reordered wrongly shows.
    """

    def __init__(self, table):
        self.table = table

    def encode(self, source):
        return tf.cast(source, tf.float32)

    def start_cache(self, encoder_output, source, num_beams):
        shape = tf.stack([tf.shape(source)[0], num_beams, 0])
        return {"sentence": source[:, 0], "history": tf.zeros(shape, tf.int32)}

    def cache_shapes(self, cache):
        return {"sentence": (None,), "history": (None, None, None)}

    def decode_step(self, ids, position, cache):
        tokens = tf.cast(ids, tf.int32)
        history = tf.concat([cache["history"], tokens[:, :, None]], 2)
        newest = history[:, :, -1]
        sentence = tf.broadcast_to(cache["sentence"][:, None], tf.shape(ids))
        index = tf.stack([sentence, tf.fill(tf.shape(ids), position), newest], 2)
        return tf.gather_nd(self.table, index), cache | {"history": history}

    def reorder_cache(self, cache, parents):
        history = tf.gather(cache["history"], parents, batch_dims=1)
        return cache | {"history": history}

    def select_rows(self, cache, rows):
        return {name: tf.gather(tensor, rows) for name, tensor in cache.items()}


def transformer(vocab_size, target_vocab_size=None, **hparams):
    """A tiny Transformer with random weights whose outputs are of many lengths.

    Sinusoids and a shared embedding would make it repeat one piece for ever.
    """
    keras.utils.set_random_seed(1)
    small = {"num_layers": 1, "d_model": 16, "d_ff": 32, "num_heads": 2}
    lively = {"share_embeddings": False, "position": "learned", "max_positions": 64}
    settings = HParams(**small | lively).override(**hparams)
    model = build_model(settings, vocab_size, target_vocab_size)
    softmax = model.softmax_embedding.weights[0]
    if isinstance(model.positions, LearnedPositions):
        model.positions.table.assign(2.0 * model.positions.table)
    is_end = np.arange(softmax.shape[0])[:, None] == EOS
    softmax.assign(np.where(is_end, 3.0, 2.0) * softmax.numpy())
    return model


def searcher(model, constraint=None, trace=True, **penalties):
    """The beam search of a model as a function of arrays, traced once or eager."""

    def search(source, max_length, beam_size, alpha, n_best):
        sizes = {"beam_size": beam_size, "max_length": max_length, "n_best": n_best}
        options = sizes | {"alpha": alpha, "constraint": constraint} | penalties
        return beam_search(model, source, **options)

    if trace:
        row = tf.TensorSpec([None], tf.int32)
        scalar = tf.TensorSpec([], tf.int32)
        alpha = tf.TensorSpec([], tf.float32)
        ids = tf.TensorSpec([None, None], tf.int32)
        search = tf.function(
            search, input_signature=[ids, row, scalar, alpha, scalar], autograph=False
        )

    def run(source, max_length, beam_size, alpha=0.6, n_best=1):
        source = tf.constant(source, tf.int32)
        limits = tf.broadcast_to(tf.constant(max_length, tf.int32), [len(source)])
        return numpy_of(search(source, limits, beam_size, alpha, n_best))

    return run


def numpy_of(tensors):
    """Hypotheses of arrays."""
    return type(tensors)(*(tensor.numpy() for tensor in tensors))


def outputs(hypotheses, row):
    """The outputs for one sentence as lists of ids."""
    rows = zip(hypotheses.ids[row], hypotheses.lengths[row], strict=True)
    return [ids[:length].tolist() for ids, length in rows]


def random_sources(count, vocab_size, longest=12):
    """Sentences of 1 to `longest` random pieces and EOS, padded."""
    random = np.random.default_rng(0)
    source = np.zeros((count, longest + 1), np.int32)
    for row in source:
        length = random.integers(1, longest + 1)
        row[:length] = random.integers(2, vocab_size, length)
        row[length] = EOS
    return source


def log_probs_of(model, source, targets):
    """The log-probabilities of targets; see `token_log_probs`."""
    return np.array([row.sum() for row in token_log_probs([model], source, targets)])


def token_log_probs(models, source, targets):
    """Teacher forcing in NumPy from the logits: a row of each target's pieces.

    Args:
        models: Transformers, whose distributions are averaged.
        source: ids [S], of one sentence.
        targets: lists of ids.
    """
    width = max(map(len, targets))
    target = np.array([[*t, *[PAD] * (width - len(t))] for t in targets], np.int32)
    source = np.tile(np.asarray(source, np.int32), (len(targets), 1))
    mean = 0.0
    for model in models:
        logits = model(source, target).numpy().astype(np.float64)
        exponentials = np.exp(logits - logits.max(-1, keepdims=True))
        mean += exponentials / exponentials.sum(-1, keepdims=True) / len(models)
    log_probs = np.take_along_axis(np.log(mean), target[:, :, None], 2)[:, :, 0]
    return [row[: len(t)] for row, t in zip(log_probs, targets, strict=True)]


def all_targets(vocab_size, max_length):
    """Every target that ends in EOS within the limit."""
    words = [piece for piece in range(vocab_size) if piece not in (PAD, EOS)]
    bodies = (itertools.product(words, repeat=length) for length in range(max_length))
    return [[*body, EOS] for of_length in bodies for body in of_length]


def penalty(length, alpha):
    return ((5 + length) / 6) ** alpha


def run_of(translator, monkeypatch, folder):
    """The flags of a run directory from which the commands load this translator."""
    from t2t_keras.cli import scoring, translation
    from t2t_keras.run.directory import RunDirectory

    for module in (scoring, translation):
        monkeypatch.setattr(module, "load", lambda *args: translator)
    monkeypatch.setattr(translation, "model_id", lambda *args: (None, "checksum"))
    monkeypatch.setattr(translation, "MAX_LINES", 2)
    monkeypatch.setattr(RunDirectory, "__init__", lambda self, path: None)
    monkeypatch.setattr(RunDirectory, "translator", lambda *args: translator)
    (folder / "run").mkdir()
    (folder / "run" / "config.json").touch()
    return "--output_dir", folder / "run"


def coverages_of(models, source, targets):
    """GNMT's coverage penalties with factor 1, from the mean of attention weights."""
    width = max(map(len, targets))
    ids = np.array([[*target, *[PAD] * (width - len(target))] for target in targets])
    total = 0.0
    for model in models:
        maps = model.attention_maps(np.array([source] * len(targets)), ids)
        weights = np.array(maps.cross[-1]).mean(axis=1)  # [N, T, S]
        total += (weights * (ids != PAD)[:, :, None]).sum(axis=1) / len(models)
    return np.log(np.minimum(total[:, : source.index(EOS) + 1], 1.0)).sum(axis=1)
