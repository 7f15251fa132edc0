"""`check_model`: the guarantees of the Transformer, tested on a model of your own."""

import dataclasses
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import t2t_keras
from t2t_keras.cli import main

_TRAINING = {"batch_tokens": 256, "train_steps": 4, "warmup_steps": 4}
_WORDS = ("the", "a", "old", "red", "dog", "cat", "house", "sees", "likes", "finds")


def check_model(model: Any, train: bool = True) -> None:
    """Checks what training and decoding need of a model.

    - Logits depend on no later target token, on no padding, and on no other sentence.
    - Decoding step by step gives the logits of teacher forcing, for beams that continue
      each other, and after finished sentences are removed.
    - Gradients reach every weight; bfloat16 and XLA give the same logits within their
      precision.
    - The update of a batch is the same in one piece and in parts: on two replicas, if
      TensorFlow has two devices, else by gradient accumulation.
    - A training that was interrupted ends with the weights, bit for bit, of one that
      was not.
    - An export gives the outputs of the model.

    The last three train a registered model with its own hyper-parameters, except for
    the size of a batch and the number of steps, in a temporary directory. A small model
    takes about half a minute. TensorFlow only.

    Args:
        model: a `Transformer` that `t2t_keras.model.build_model` returned.
        train: whether to check the last three, which take most of the time.

    Raises:
        AssertionError: a guarantee does not hold; the message names it.
    """
    _check_independence(model)
    _check_steps(model)
    _check_arithmetic(model)
    if not train:
        return
    with tempfile.TemporaryDirectory() as directory:
        _check_training(model.hparams, Path(directory))


def _ids(model: Any, *shape: int) -> np.ndarray:
    """Returns random ids without PAD."""
    size = min(model.source_vocab_size, model.target_vocab_size or np.inf)
    return np.random.default_rng(0).integers(2, size, shape).astype(np.int32)


def _check_independence(model: Any) -> None:
    source, target = _ids(model, 2, 5), _ids(model, 2, 6)
    logits = np.array(model(source, target))
    later = target.copy()
    later[:, 3:] = 1
    found = np.array(model(source, later))[:, :4]
    _equal("logits must depend on no later token", found, logits[:, :4])
    pad = [(0, 0), (0, 3)]
    padded = np.array(model(np.pad(source, pad), np.pad(target, pad)))[:, :6]
    _equal("logits must depend on no padding", padded, logits)
    alone = np.array(model(source[:1], target[:1]))
    _equal("logits must depend on no other sentence", alone, logits[:1])


def _check_steps(model: Any) -> None:
    """Decodes random tokens with random continuations, and compares each step."""
    rng = np.random.default_rng(1)
    sentences, beams, steps = 3, 4, 6
    source, tokens = _ids(model, sentences, 5), _ids(model, steps, sentences, beams)
    cache = model.start_cache(model.encode(source), source, beams)
    prefixes = np.zeros((sentences, beams, 0), np.int32)
    ids = np.zeros((sentences, beams), np.int32)
    for step in range(steps):
        logits, cache = model.decode_step(ids, step, cache)
        count = len(source)
        targets = np.concatenate([prefixes, tokens[step, :count, :, None]], axis=2)
        forced = model(np.repeat(source, beams, 0), targets.reshape(-1, step + 1))
        expected = np.array(forced)[:, -1].reshape(count, beams, -1)
        rule = "logits must be those of teacher forcing at each step"
        _equal(rule, np.array(logits), expected)
        parents = rng.integers(0, beams, (count, beams)).astype(np.int32)
        cache = model.reorder_cache(cache, parents)
        prefixes = np.take_along_axis(targets, parents[:, :, None], axis=1)
        if step == 2:  # the first sentence is done
            rows = np.arange(1, count, dtype=np.int32)
            cache = model.select_rows(cache, rows)
            source, prefixes = source[rows], prefixes[rows]
            tokens = tokens[:, rows]
        ids = prefixes[:, :, -1]


def _check_arithmetic(model: Any) -> None:
    import tensorflow as tf

    source, target = _ids(model, 2, 5), _ids(model, 2, 6)
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
    most = 0.2 * float(np.std(logits))
    _equal("logits must be nearly the same in bfloat16", small, logits, most)


def _check_training(hparams: t2t_keras.HParams, directory: Path) -> None:
    import tensorflow as tf

    rng = np.random.default_rng(2)
    lines = [" ".join(rng.choice(_WORDS, rng.integers(2, 9))) for _ in range(300)]
    text = "".join(f"{line}\n" for line in lines)
    (directory / "text").write_text(text, encoding="utf-8")
    files = [
        f"--{split}_{side}={directory}/text"
        for split in ("train", "dev")
        for side in ("source", "target")
    ]
    problem, data = "translate_text", directory / "data"
    # With more workers a script of the caller would need a `__main__` guard.
    files += ["--vocab_size=290", "--workers=1"]
    _run("datagen", "--problem", problem, "--data_dir", data, *files)

    def train(name: str, steps: int = 4, **options: Any) -> list[np.ndarray]:
        changes = dataclasses.asdict(hparams) | _TRAINING | options.pop("hparams", {})
        t2t_keras.train(
            problem,
            "base",
            data_dir=data,
            output_dir=directory / name,
            hparams=changes | {"train_steps": steps},
            options=t2t_keras.TrainOptions(
                eval_sentences=0, average_last=0, save_every=2
            ),
            **options,
        )
        translator: Any = t2t_keras.load(directory / name)
        return translator.model.get_weights()

    whole = train("whole")
    train("resumed", 2)
    for ours, theirs in zip(train("resumed"), whole, strict=True):
        assert np.array_equal(ours, theirs), "a resumed training has other weights"

    same = {"dropout": 0.0, "attention_dropout": 0.0, "ffn_dropout": 0.0}
    two = len(tf.config.list_logical_devices("CPU")) > 1
    parts = {"simulate_devices": 2} if two else {"accumulate": 2}
    one = train("one", 2, hparams=same)
    for ours, theirs in zip(train("parts", 2, hparams=same, **parts), one, strict=True):
        _equal("a batch in parts must give the weights of the whole", ours, theirs)

    served = directory / "export"
    _run("export", "--output_dir", directory / "whole", "--export_dir", served)


def _run(*argv: object) -> None:
    assert main([str(word) for word in argv]) == 0, f"t2t {argv[0]} failed"


def _equal(rule: str, found: Any, expected: Any, tolerance: float = 1e-4) -> None:
    error = float(np.max(np.abs(np.asarray(found, np.float32) - expected)))
    assert error <= tolerance, f"{rule}; they differ by {error:.2g}"
