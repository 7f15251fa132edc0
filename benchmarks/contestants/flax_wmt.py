"""flax's example of machine translation, with jit on one device.

The environment variable FLAX_WMT names the folder `examples/wmt` of flax's repository.
Its `models.py` and `decode.py` are used as they are. Its `train.py` would need more
packages; the loss here makes no one-hot targets, which is faster.
"""

import functools
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import jax
import optax
from jax import numpy as jnp
from workload import PAD, Workload

from contestants import TrainingStep
from contestants.jax_update import compiled_step, uses_gpu

__all__ = ["search", "training_step", "uses_gpu"]

Params = dict[str, object]

if "FLAX_WMT" not in os.environ:
    raise ModuleNotFoundError(name="the folder FLAX_WMT")


def training_step(work: Workload) -> TrainingStep:
    """Returns an update, all of it in one compiled function."""
    config = _config(work)
    run_key = jax.random.key(0)
    source, target = (jnp.asarray(work.ids(seed)) for seed in (0, 1))
    model = _example("models").Transformer(config)

    def loss_of(params: Params, step: jax.Array) -> jax.Array:
        key = jax.random.fold_in(run_key, step)
        logits = model.apply({"params": params}, source, target, rngs={"dropout": key})
        losses = _smoothed_losses(logits, target, work.hparams.label_smoothing)
        return jnp.mean(losses, where=target != PAD)

    return compiled_step(work, _params(config), loss_of)


def search(work: Workload, beam_size: int, steps: int) -> Callable[[], None]:
    """Returns the example's beam search, compiled, with its cache made each time."""
    config = _config(work).replace(deterministic=True)
    params = _params(config)
    decode = _example("decode")
    model = _example("models").Transformer(config.replace(decode=True))
    source = jnp.asarray(work.ids(0))

    @jax.jit
    def translate(params: Params, source: jax.Array) -> jax.Array:
        target = jnp.ones([work.batch, 1 + steps], config.dtype)
        cache = model.init(jax.random.key(0), source, target)["cache"]
        encoder_output = model.apply({"params": params}, source, method=model.encode)
        encoder_output, beam_source = (
            decode.flat_batch_beam_expand(array, beam_size)
            for array in (encoder_output, source)
        )

        def next_logits(ids: jax.Array, cache: Params) -> tuple[jax.Array, Params]:
            logits, variables = model.apply(
                {"params": params, "cache": cache},
                encoder_output,
                beam_source,
                ids,
                mutable=["cache"],
                method=model.decode,
            )
            return logits[:, 0], variables["cache"]  # [B * K, V]

        # No output ends early, because no token is EOS.
        outputs, _ = decode.beam_search(
            source,
            cache,
            next_logits,
            beam_size=beam_size,
            alpha=0.6,
            eos_id=-1,
            max_decode_len=1 + steps,
        )
        return outputs

    return lambda: jax.block_until_ready(translate(params, source))


def _smoothed_losses(
    logits: jax.Array, target: jax.Array, label_smoothing: float
) -> jax.Array:
    """Returns label-smoothed cross-entropies [B, T], given logits [B, T, V]."""
    logits = logits.astype(jnp.float32)
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, target)
    uniform = jax.nn.logsumexp(logits, -1) - jnp.mean(logits, -1)
    return (1 - label_smoothing) * losses + label_smoothing * uniform


def _config(work: Workload) -> object:
    """Returns the example's configuration of the workload's model."""
    hparams = work.hparams
    return _example("models").TransformerConfig(
        vocab_size=work.padded_vocab_size,
        output_vocab_size=work.padded_vocab_size,
        share_embeddings=True,
        logits_via_embedding=True,
        dtype=jnp.dtype(hparams.compute_dtype),
        emb_dim=hparams.d_model,
        num_heads=hparams.num_heads,
        num_layers=hparams.num_layers,
        qkv_dim=hparams.d_model,
        mlp_dim=hparams.d_ff,
        max_len=256,
        dropout_rate=hparams.dropout,
        attention_dropout_rate=0.0,
    )


def _params(config: object) -> Params:
    """Returns new weights."""
    model = _example("models").Transformer(config.replace(deterministic=True))
    ids = jnp.ones([1, 1])
    return jax.jit(model.init)(jax.random.key(0), ids, ids)["params"]


@functools.cache
def _example(name: str) -> ModuleType:
    """Returns a module of the example; benchmarks have one of the same name."""
    path = Path(os.environ["FLAX_WMT"]) / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"flax_wmt_{name}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look for their module
    spec.loader.exec_module(module)
    return module
