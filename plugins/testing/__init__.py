"""`check_model`: the guarantees of the Transformer, tested on a model of your own."""

import contextlib
import dataclasses
import io
import logging
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import t2t_keras
from t2t_keras.cli import main
from t2t_keras.errors import first_line

if TYPE_CHECKING:
    from t2t_keras.model import Transformer

_TRAINING = {"batch_tokens": 256, "train_steps": 4, "warmup_steps": 4}
_PACKING_RULE = (
    "packed rows must give the logits of rows with one pair: add `bias` to the scores "
    "in every attention, and use the positions and segments that make_positions, "
    "source_input and cross_attention_bias get"
)
_WORDS = ("the", "a", "old", "red", "dog", "cat", "house", "sees", "likes", "finds")


def check_model(model: "Transformer", train: bool = True) -> None:
    """Checks what training and decoding need of a model.

    - Logits depend on no later target token, on no padding, and on no other sentence.
    - Packed rows, with several pairs each, give the logits, the dropout and the loss of
      rows with one pair.
    - Decoding step by step gives the logits of teacher forcing, for beams that continue
      each other, and after finished sentences are removed.
      So do compiled steps, unless the cache grows (see `TokenCache`).
    - Gradients reach every weight; bfloat16 and XLA give the same logits within their
      precision.
    - The update of a batch is the same as a whole and divided: on two replicas, if
      TensorFlow has two devices, else by gradient accumulation.
    - An interrupted training ends with the weights, bit for bit, of one that was not
      interrupted.
    - An export gives the outputs of the model.

    The last three train a registered model with its own hyper-parameters, except for
    the size of a batch and the number of steps, in a temporary directory. A small model
    takes about half a minute. TensorFlow only. A line is printed for every guarantee
    that holds, and one at the end.

    Args:
        model: a `Transformer` that `t2t_keras.model.build_model` returned.
        train: whether to check the last three, which take most of the time.

    Raises:
        AssertionError: a guarantee does not hold; the message names it.
    """
    checks = {
        "logits: no later token, no padding, no other sentence": _check_independence,
        "packed rows": _check_packing,
        "decoding step by step": _check_steps,
        "decoding compiled by XLA": _check_compiled_steps,
        "gradients, XLA and bfloat16": _check_arithmetic,
    }
    with _without_warnings():
        for guarantee, check in checks.items():
            with _named(guarantee):
                check(model)
            _print_ok(guarantee)
        if train:
            with tempfile.TemporaryDirectory() as directory, _named("training"):
                _check_training(model.hparams, Path(directory))
    omission = "" if train else "; the last three, of training, are not checked"
    print(f"{model.hparams.model} keeps the guarantees{omission}")


@contextlib.contextmanager
def _named(guarantee: str) -> Iterator[None]:
    """Raises errors of the model as an `AssertionError` that names a guarantee."""
    try:
        yield
    except AssertionError:
        raise
    except Exception as error:
        name = type(error).__name__
        raise AssertionError(
            f"{guarantee}: the model fails: {name}: {first_line(error)}"
        ) from error


def _print_ok(guarantee: str) -> None:
    print(f"ok  {guarantee}", flush=True)


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """Hides warnings of Keras and TensorFlow about the few tokens and many graphs."""
    with warnings.catch_warnings(), _errors_of("tensorflow"), _errors_of("absl"):
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def _errors_of(name: str) -> Iterator[None]:
    """Lets a logger write nothing but errors."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _ids(model: "Transformer", *shape: int) -> np.ndarray:
    """Returns random ids without PAD."""
    size = model.source_vocab_size
    if model.target_vocab_size is not None:
        size = min(size, model.target_vocab_size)
    return np.random.default_rng(0).integers(2, size, shape).astype(np.int32)


def _check_independence(model: "Transformer") -> None:
    source = _ids(model, 2, 5)
    target = _ids(model, 2, 6)
    logits = np.array(model(source, target))  # [B, T, V]
    changed = target.copy()
    changed[:, 3:] = 1
    prefix_logits = np.array(model(source, changed))[:, :4]
    _equal("logits must depend on no later token", prefix_logits, logits[:, :4])
    pad = [(0, 0), (0, 3)]
    padded = np.array(model(np.pad(source, pad), np.pad(target, pad)))[:, :6]
    _equal("logits must depend on no padding", padded, logits)
    alone = np.array(model(source[:1], target[:1]))
    _equal("logits must depend on no other sentence", alone, logits[:1])


def _check_packing(model: "Transformer") -> None:
    from t2t_keras.training.sanity_checks import (
        packed_and_single_logits,
        packed_and_single_losses,
    )

    for seed in (None, np.array([1, 2], np.int32)):
        try:
            comparisons = list(packed_and_single_logits(model, seed))
        except (TypeError, ValueError) as error:
            raise AssertionError(f"{_PACKING_RULE}; it fails: {error}") from error
        for packed, single in comparisons:
            _equal(_PACKING_RULE, packed, single)
    packed_loss, loss = packed_and_single_losses(model)
    rule = "`training_losses` must use the packing"
    _equal(rule, np.array(packed_loss), np.array(loss), 1e-4 * abs(loss))


def _check_steps(model: "Transformer") -> None:
    """Decodes random tokens with random continuations, and compares each step."""
    rng = np.random.default_rng(1)
    sentences = 3
    beams = 4
    steps = 6
    source = _ids(model, sentences, 5)
    tokens = _ids(model, steps, sentences, beams)
    cache = model.start_cache(model.encode(source), source, beams)
    prefixes = np.zeros((sentences, beams, 0), np.int32)
    ids = np.zeros((sentences, beams), np.int32)
    for step in range(steps):
        logits, cache = model.decode_step(ids, step, cache)
        count = len(source)
        new = tokens[step, :count, :, None]  # [B, K, 1]
        targets = np.concatenate([prefixes, new], axis=2)  # [B, K, T]
        forced = model(np.repeat(source, beams, 0), targets.reshape(-1, step + 1))
        expected = np.array(forced)[:, -1].reshape(count, beams, -1)  # [B, K, V]
        rule = "logits must be those of teacher forcing at each step"
        _equal(rule, np.array(logits), expected)
        parents = rng.integers(0, beams, (count, beams)).astype(np.int32)
        cache = model.reorder_cache(cache, parents)
        prefixes = np.take_along_axis(targets, parents[:, :, None], axis=1)
        if step == 2:  # The first sentence leaves the batch.
            rows = np.arange(1, count, dtype=np.int32)
            cache = model.select_rows(cache, rows)
            source = source[rows]
            prefixes = prefixes[rows]
            tokens = tokens[:, rows]
        ids = prefixes[:, :, -1]


def _check_compiled_steps(model: "Transformer") -> None:
    """Decodes two tokens, compiled by XLA, and extends the cache before each."""
    import tensorflow as tf

    if not model.reserves_cache:
        return
    source = _ids(model, 2, 5)
    tokens = _ids(model, 2, 3)  # [B, K]

    @tf.function(autograph=False, jit_compile=True)
    def second_step() -> tf.Tensor:
        cache = model.start_cache(model.encode(source), source, 3)
        cache = model.reserve_cache(cache, 1)
        _, cache = model.decode_step(np.zeros_like(tokens), 0, cache)
        cache = model.reserve_cache(cache, 2)
        parents = np.array([[2, 0, 0], [1, 1, 2]], np.int32)
        cache = model.reorder_cache(cache, parents)
        return model.decode_step(tokens, 1, cache)[0]

    targets = np.stack([tokens, tokens], axis=2).reshape(-1, 2)
    expected = np.array(model(np.repeat(source, 3, 0), targets))[:, -1]
    rule = "logits must be those of teacher forcing with a preallocated cache and XLA"
    _equal(rule, np.array(second_step()), expected.reshape(2, 3, -1), 1e-3)


def _check_arithmetic(model: "Transformer") -> None:
    import tensorflow as tf

    source = _ids(model, 2, 5)
    target = _ids(model, 2, 6)
    with tf.GradientTape() as tape:
        outputs = model(source, target)
        loss = tf.reduce_sum(tf.square(outputs) * tf.range(1.0, 7.0)[:, None])
    weights = [weight.value for weight in model.trainable_weights]
    for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
        gradient = None if gradient is None else tf.convert_to_tensor(gradient)
        assert gradient is not None and np.any(gradient), f"no gradient: {weight.name}"
    logits = np.array(outputs)
    compiled = np.array(tf.function(model, jit_compile=True)(source, target))
    _equal("logits must be the same with XLA", compiled, logits, 1e-3)
    small = np.array(model.with_compute_dtype("bfloat16")(source, target))
    tolerance = 0.2 * float(np.std(logits))
    _equal("logits must be nearly the same in bfloat16", small, logits, tolerance)


def _check_training(hparams: t2t_keras.HParams, directory: Path) -> None:
    import tensorflow as tf

    data_dir = directory / "data"
    _make_data(directory / "text", data_dir)

    def train(name: str, steps: int = 4, **options: Any) -> list[np.ndarray]:
        changes = dataclasses.asdict(hparams) | _TRAINING | options.pop("hparams", {})
        with contextlib.redirect_stderr(io.StringIO()):
            t2t_keras.train(
                "translate_text",
                "base",
                data_dir=data_dir,
                output_dir=directory / name,
                hparams=changes | {"train_steps": steps},
                eval_sentences=0,
                average_last=0,
                save_every=2,
                **options,
            )
        translator: Any = t2t_keras.load(directory / name)
        return translator.model.get_weights()

    uninterrupted = train("uninterrupted")
    train("resumed", 2)
    for weight, expected in zip(train("resumed"), uninterrupted, strict=True):
        assert np.array_equal(weight, expected), "a resumed training has other weights"
    _print_ok("an interrupted training")

    no_dropout = {"dropout": 0.0, "attention_dropout": 0.0, "ffn_dropout": 0.0}
    has_two_devices = len(tf.config.list_logical_devices("CPU")) > 1
    division = {"simulate_devices": 2} if has_two_devices else {"accumulate": 2}
    undivided = train("undivided", 2, hparams=no_dropout)
    divided = train("divided", 2, hparams=no_dropout, **division)
    for weight, expected in zip(divided, undivided, strict=True):
        _equal("a divided batch must give the weights of the whole", weight, expected)
    _print_ok("a divided batch")

    run = directory / "uninterrupted"
    _run("export", "--output_dir", run, "--export_dir", directory / "export")
    _print_ok("an export")


def _make_data(text: Path, data_dir: Path) -> None:
    """Writes random sentences, and makes data in which they translate themselves."""
    rng = np.random.default_rng(2)
    lines = [" ".join(rng.choice(_WORDS, rng.integers(2, 9))) for _ in range(300)]
    text.write_text("\n".join([*lines, ""]), encoding="utf-8")
    _run(
        "datagen",
        "--problem=translate_text",
        f"--data_dir={data_dir}",
        f"--train_source={text}",
        f"--train_target={text}",
        f"--dev_source={text}",
        f"--dev_target={text}",
        "--vocab_size=290",
        "--workers=1",  # for so few pairs, starting others takes longer
    )


def _run(*argv: object) -> None:
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()) as messages,
    ):
        code = main(list(map(str, argv)))
    lines = messages.getvalue().splitlines() or [f"t2t {argv[0]} failed"]
    assert code == 0, lines[-1]


def _equal(
    rule: str, actual: NDArray[Any], expected: NDArray[Any], tolerance: float = 1e-4
) -> None:
    error = float(np.max(np.abs(np.asarray(actual, np.float32) - expected)))
    assert error <= tolerance, f"{rule}; they differ by {error:.2g}"
