"""Sampling: target sequences drawn from the model's distribution, token by token."""

from typing import NamedTuple

import tensorflow as tf

from t2t_keras.decoding.beam_search import (
    NOTHING,
    Hypotheses,
    decode,
    length_penalty,
    select,
)
from t2t_keras.decoding.constraint import AllOf, Constraint, only
from t2t_keras.decoding.ensemble import DecodingModel
from t2t_keras.decoding.options import LengthPenalty
from t2t_keras.model.backend import Nest
from t2t_keras.text.tokenizer import EOS, PAD


class _SampleState(NamedTuple):
    """The loop variables for N = B K samples: each is a row, with one hypothesis.

    Attributes:
        position: scalar, the number of steps done.
        done: [N], whether a sample has ended.
        max_length: [N], its largest number of tokens.
        uniform: [N, T], its random numbers.
        ids: [N, 1, 1 + position]; the first is PAD, the decoder's first input.
        log_probs: [N, 1], summed over the tokens so far, before temperature.
        lengths: [N, 1], the numbers of tokens without the first PAD.
        cache: the model's cache.
        constraint: the constraint's state.
    """

    position: tf.Tensor
    done: tf.Tensor
    max_length: tf.Tensor
    uniform: tf.Tensor
    ids: tf.Tensor
    log_probs: tf.Tensor
    lengths: tf.Tensor
    cache: Nest
    constraint: Nest


def sample(
    model: DecodingModel,
    source: tf.Tensor,
    *,
    seeds: tf.Tensor,
    max_length: tf.Tensor,
    num_samples: int | tf.Tensor = 1,
    temperature: float | tf.Tensor = 1.0,
    top_k: int | tf.Tensor = 0,
    top_p: float | tf.Tensor = 1.0,
    alpha: float | tf.Tensor = 0.0,
    kind: LengthPenalty = "gnmt",
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
        kind: see `length_penalty`.
        constraint: restricts what may be generated.

    Returns:
        K samples for each sentence in the order in which they were drawn. Their
        log-probabilities are the model's, before temperature, top_k and top_p.
    """
    num_samples = tf.convert_to_tensor(num_samples, tf.int32)
    constraint = constraint or AllOf()

    def step(state: _SampleState) -> _SampleState:
        logits, cache = model.decode_step(
            state.ids[:, :, -1], state.position, state.cache
        )
        allowed = tf.logical_and(
            constraint.mask(state.constraint, state.position),
            ~only(PAD, logits.shape[2]),
        )
        tokens = _draw(
            tf.where(allowed, logits, NOTHING) / temperature,
            state.uniform[:, state.position, None],
            top_k,
            top_p,
        )
        log_probs = tf.where(allowed, tf.nn.log_softmax(logits), NOTHING)
        log_probs = tf.gather(log_probs, tokens, axis=2, batch_dims=2)
        is_done = state.done[:, None]
        tokens = tf.where(is_done, PAD, tokens)
        position = state.position + 1
        ends = (
            (tokens == EOS)
            | (position >= state.max_length[:, None])
            | (log_probs == NOTHING)  # the constraint excludes all tokens
        )
        return state._replace(
            position=position,
            done=state.done | ends[:, 0],
            ids=tf.concat([state.ids, tokens[:, :, None]], axis=2),
            log_probs=state.log_probs + tf.where(is_done, 0.0, log_probs),
            lengths=tf.where(is_done, state.lengths, position),
            cache=cache,
            constraint=constraint.advance(
                state.constraint, tf.zeros_like(tokens), tokens
            ),
        )

    def results(state: _SampleState) -> Hypotheses:
        is_sample = state.log_probs > NOTHING
        lengths = tf.where(is_sample, state.lengths, 0)
        return Hypotheses(
            ids=tf.where(is_sample[:, :, None], state.ids[:, :, 1:], PAD),
            scores=state.log_probs / length_penalty(lengths, alpha, kind),
            log_probs=state.log_probs,
            lengths=lengths,
        )

    start = _start(model, source, seeds, max_length, num_samples, constraint)
    found = decode(model, start, step, results)
    shape = tf.stack([tf.shape(source)[0], num_samples])
    return tf.nest.map_structure(
        lambda x: tf.reshape(x, tf.concat([shape, tf.shape(x)[2:]], 0)), found
    )


def _start(
    model: DecodingModel,
    source: tf.Tensor,
    seeds: tf.Tensor,
    max_length: tf.Tensor,
    num_samples: tf.Tensor,
    constraint: Constraint,
) -> _SampleState:
    """Returns the state before the first step."""
    batch = tf.shape(source)[0]
    one = tf.ones([], tf.int32)
    sentences = _SampleState(
        position=tf.constant(0),
        done=max_length <= 0,
        max_length=max_length,
        uniform=tf.zeros([batch, 0]),
        ids=tf.fill([batch, 1, 1], PAD),
        log_probs=tf.zeros([batch, 1]),
        lengths=tf.zeros([batch, 1], tf.int32),
        cache=model.start_cache(model.encode(source), source, one),
        constraint=constraint.init(source, one),
    )
    samples = select(model, sentences, tf.repeat(tf.range(batch), num_samples))
    uniform = _uniform(seeds, num_samples, tf.reduce_max(max_length))
    steps = tf.shape(uniform)[2]
    return samples._replace(uniform=tf.reshape(uniform, [-1, steps]))


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
        logits: [N, 1, V], -inf where a token is not allowed.
        uniform: [N, 1], random numbers in [0, 1).
        top_k: see `sample`.
        top_p: see `sample`.

    Returns:
        The tokens [N, 1].
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
