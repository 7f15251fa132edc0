"""Sampling: target sequences drawn from the model's distribution, token by token."""

from typing import NamedTuple

import tensorflow as tf

from t2t_keras.backend import Nest
from t2t_keras.decoding.beam_search import (
    NOTHING,
    Hypotheses,
    StepModel,
    length_penalty,
    loop_shapes,
)
from t2t_keras.decoding.constraint import AllOf, Constraint, only
from t2t_keras.text.tokenizer import EOS, PAD


class _State(NamedTuple):
    """The loop variables: K unfinished samples for each sentence.

    Attributes:
        position: scalar, the number of steps done.
        ids: [B, K, 1 + position]; the first is PAD, the decoder's first input.
        log_probs: [B, K], summed over the tokens so far, before temperature.
        lengths: [B, K], the numbers of tokens without the first PAD.
        done: [B, K], whether a sample has ended.
        cache: the model's cache.
        constraint: the constraint's state.
    """

    position: tf.Tensor
    ids: tf.Tensor
    log_probs: tf.Tensor
    lengths: tf.Tensor
    done: tf.Tensor
    cache: Nest
    constraint: Nest


def sample(
    model: StepModel,
    source: tf.Tensor,
    *,
    seeds: tf.Tensor,
    max_length: tf.Tensor,
    num_samples: int | tf.Tensor = 1,
    temperature: float | tf.Tensor = 1.0,
    top_k: int | tf.Tensor = 0,
    top_p: float | tf.Tensor = 1.0,
    alpha: float | tf.Tensor = 0.0,
    constraint: Constraint | None = None,
) -> Hypotheses:
    """Draws target sequences at random; equal seeds give equal samples.

    Every sentence has its own seed, so its samples are the same in any batch.

    Args:
        model: the model.
        source: ids [B, S] int32, padded with PAD.
        seeds: [B, 2] int32.
        max_length: [B] int32, the largest number of tokens in each sample, EOS
            included.
        num_samples: number K of independent samples for each sentence.
        temperature: divides the logits; below 1, likely tokens become more likely.
        top_k: draw only among the k most likely tokens; 0: among all.
        top_p: draw only among the fewest most likely tokens that together have this
            probability (after temperature and top_k); 1: among all.
        alpha: exponent of the length penalty in the scores; the samples do not depend
            on it.
        constraint: restricts what may be generated.

    Returns:
        K samples for each sentence in the order in which they were drawn. Their
        log-probabilities are the model's, before temperature, top_k and top_p.
    """
    num_samples = tf.convert_to_tensor(num_samples, tf.int32)
    constraint = constraint or AllOf()
    shape = tf.stack([tf.shape(source)[0], num_samples])
    each = tf.broadcast_to(tf.range(num_samples), shape)  # sample k continues itself
    uniform = _uniform(seeds, num_samples, tf.reduce_max(max_length))

    def unfinished(state: _State) -> tf.Tensor:
        return tf.logical_not(tf.reduce_all(state.done))

    def step(state: _State) -> tuple[_State]:
        logits, cache = model.decode_step(
            state.ids[:, :, -1], state.position, state.cache
        )
        allowed = tf.logical_and(
            constraint.mask(state.constraint, state.position),
            ~only(PAD, logits.shape[2]),
        )
        tokens = _draw(
            tf.where(allowed, logits, NOTHING) / temperature,
            uniform[:, :, state.position],
            top_k,
            top_p,
        )
        log_probs = tf.where(allowed, tf.nn.log_softmax(logits), NOTHING)
        log_probs = tf.gather(log_probs, tokens, axis=2, batch_dims=2)
        tokens = tf.where(state.done, PAD, tokens)
        position = state.position + 1
        new = _State(
            position=position,
            ids=tf.concat([state.ids, tokens[:, :, None]], axis=2),
            log_probs=state.log_probs + tf.where(state.done, 0.0, log_probs),
            lengths=tf.where(state.done, state.lengths, position),
            done=state.done
            | (tokens == EOS)
            | (position >= max_length[:, None])
            | (log_probs == NOTHING),  # the constraint excludes all tokens
            cache=cache,
            constraint=constraint.advance(state.constraint, each, tokens),
        )
        return (new,)

    start = _State(
        position=tf.constant(0),
        ids=tf.fill(tf.concat([shape, [1]], 0), PAD),
        log_probs=tf.zeros(shape),
        lengths=tf.zeros(shape, tf.int32),
        done=tf.broadcast_to(max_length[:, None] <= 0, shape),
        cache=model.start_cache(model.encode(source), source, num_samples),
        constraint=constraint.init(source, num_samples),
    )
    (end,) = tf.while_loop(
        unfinished, step, (start,), shape_invariants=(loop_shapes(model, start),)
    )
    is_sample = end.log_probs > NOTHING
    lengths = tf.where(is_sample, end.lengths, 0)
    return Hypotheses(
        ids=tf.where(is_sample[:, :, None], end.ids[:, :, 1:], PAD),
        scores=end.log_probs / length_penalty(lengths, alpha),
        log_probs=end.log_probs,
        lengths=lengths,
    )


def _uniform(seeds: tf.Tensor, num_samples: tf.Tensor, steps: tf.Tensor) -> tf.Tensor:
    """Returns random numbers [B, K, steps] in [0, 1); `steps` only adds later ones."""
    by_step = tf.map_fn(
        lambda seed: tf.random.stateless_uniform([steps, num_samples], seed),
        seeds,
        fn_output_signature=tf.TensorSpec([None, None], tf.float32),
    )
    return tf.transpose(by_step, [0, 2, 1])


def _draw(
    logits: tf.Tensor,
    uniform: tf.Tensor,
    top_k: int | tf.Tensor,
    top_p: float | tf.Tensor,
) -> tf.Tensor:
    """Draws a token for each sample by inverting the cumulative distribution.

    Args:
        logits: [B, K, V], -inf where a token is not allowed.
        uniform: [B, K], random numbers in [0, 1).
        top_k: see `sample`.
        top_p: see `sample`.

    Returns:
        The tokens [B, K].
    """
    vocab_size = tf.shape(logits)[2]

    def best_first() -> tuple[tf.Tensor, tf.Tensor]:
        count = tf.where(top_k > 0, tf.minimum(top_k, vocab_size), vocab_size)
        largest = tf.math.top_k(logits, count)
        return largest.values, largest.indices

    def as_they_are() -> tuple[tf.Tensor, tf.Tensor]:
        return logits, tf.broadcast_to(tf.range(vocab_size), tf.shape(logits))

    # Sort only if necessary: sorting the vocabulary takes longer than all the rest.
    is_cut = tf.logical_or(top_k > 0, top_p < 1.0)
    values, tokens = tf.cond(is_cut, best_first, as_they_are)
    probs = tf.nn.softmax(values)
    before = tf.cumsum(probs, axis=2, exclusive=True)
    in_nucleus = tf.logical_or(before < top_p, top_p >= 1.0)
    mass = tf.cumsum(tf.where(in_nucleus, probs, 0.0), axis=2)
    passed = mass <= uniform[:, :, None] * mass[:, :, -1:]
    choice = tf.reduce_sum(tf.cast(passed, tf.int32), axis=2)
    return tf.gather(tokens, choice, axis=2, batch_dims=2)
