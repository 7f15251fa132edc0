"""Sampling: target sequences drawn from the model's distribution, token by token."""

import dataclasses
from typing import NamedTuple

import tensorflow as tf

from t2t_keras.decoding.constraint import AllOf, Constraint, allow_only_mask
from t2t_keras.decoding.ensemble import DecodingModel
from t2t_keras.decoding.search_loop import (
    NEG_INF,
    Hypotheses,
    decode_loop,
    length_penalties,
    select_rows,
)
from t2t_keras.model.backend import Nest
from t2t_keras.problem import LengthPenalty
from t2t_keras.text.vocabulary import EOS, PAD


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
    penalty_formula: LengthPenalty = "gnmt",
    constraint: Constraint | None = None,
) -> Hypotheses:
    """Draws target sequences at random; equal seeds give equal samples.

    Every sentence has its own seed, so its samples are the same in any batch.

    Args:
        model: the model.
        source: ids [B, S] int32, padded with PAD.
        seeds: [B, 2] int32.
        max_length: [B] int32, the maximum number of tokens in each sample, EOS
            included.
        num_samples: number K of independent samples for each sentence.
        temperature: divides the logits; below 1, likely tokens become more likely.
        top_k: draw only among the k most likely tokens; 0: among all.
        top_p: draw only among the fewest most likely tokens that together have this
            probability (after temperature and top_k); 1: among all.
        alpha: exponent of the length penalty in the scores; the samples do not depend
            on it.
        penalty_formula: see `length_penalty`.
        constraint: restricts what may be generated.

    Returns:
        K samples for each sentence in the order in which they were drawn. Their
        log-probabilities are the model's, before temperature, top_k and top_p.
    """
    num_samples = tf.convert_to_tensor(num_samples, tf.int32)
    sampler = _Sampler(
        model=model,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        alpha=alpha,
        penalty_formula=penalty_formula,
        constraint=constraint or AllOf(),
    )
    state = sampler.init(source, seeds, max_length, num_samples)
    samples = decode_loop(model, state, sampler.step, sampler.results)
    shape = tf.stack([tf.shape(source)[0], num_samples])
    return tf.nest.map_structure(
        lambda x: tf.reshape(x, tf.concat([shape, tf.shape(x)[2:]], 0)), samples
    )


class _SampleState(NamedTuple):
    """The loop variables for N = B * K samples: each is a row, with one hypothesis.

    Attributes:
        position: scalar, the number of steps done.
        done: [N], whether a sample has ended.
        max_length: [N], the maximum number of tokens.
        uniform: [N, max T], the random numbers.
        ids: [N, 1, 1 + T]; the first is PAD, the decoder's first input.
        log_probs: [N, 1], summed over the tokens so far, before temperature.
        lengths: [N, 1], numbers of tokens without the first PAD.
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Sampler:
    """The steps of sampling; see the arguments of `sample`."""

    model: DecodingModel
    temperature: float | tf.Tensor
    top_k: int | tf.Tensor
    top_p: float | tf.Tensor
    alpha: float | tf.Tensor
    penalty_formula: LengthPenalty
    constraint: Constraint

    def init(
        self,
        source: tf.Tensor,
        seeds: tf.Tensor,
        max_length: tf.Tensor,
        num_samples: tf.Tensor,
    ) -> _SampleState:
        """Returns the state before the first step."""
        batch = tf.shape(source)[0]
        num_beams = tf.ones([], tf.int32)
        cache = self.model.start_cache(self.model.encode(source), source, num_beams)
        sentences = _SampleState(
            position=tf.constant(0),
            done=max_length <= 0,
            max_length=max_length,
            uniform=tf.zeros([batch, 0]),
            ids=tf.fill([batch, 1, 1], PAD),
            log_probs=tf.zeros([batch, 1]),
            lengths=tf.zeros([batch, 1], tf.int32),
            cache=cache,
            constraint=self.constraint.init(source, num_beams),
        )
        rows = tf.repeat(tf.range(batch), num_samples)  # [N]
        samples = select_rows(self.model, sentences, rows)
        uniform = _uniform(seeds, num_samples, tf.reduce_max(max_length))  # [B, K, T]
        steps = tf.shape(uniform)[2]
        return samples._replace(uniform=tf.reshape(uniform, [-1, steps]))

    def step(self, state: _SampleState) -> _SampleState:
        """Draws the next token of each sample."""
        last_tokens = state.ids[:, :, -1]  # [N, 1]
        # [N, 1, V]
        logits, cache = self.model.decode_step(last_tokens, state.position, state.cache)
        allowed = tf.logical_and(
            self.constraint.mask(state.constraint, state.position),
            ~allow_only_mask(PAD, logits.shape[2]),
        )  # broadcasts to [N, 1, V]
        tokens = _draw(
            tf.where(allowed, logits, NEG_INF) / self.temperature,
            state.uniform[:, state.position, None],
            self.top_k,
            self.top_p,
        )  # [N, 1]
        log_probs = tf.where(allowed, tf.nn.log_softmax(logits), NEG_INF)  # [N, 1, V]
        log_probs = tf.gather(log_probs, tokens, axis=2, batch_dims=2)  # [N, 1]
        was_done = state.done[:, None]  # [N, 1]
        tokens = tf.where(was_done, PAD, tokens)
        position = state.position + 1
        is_done = (
            (tokens == EOS)
            | (position >= state.max_length[:, None])
            | (log_probs == NEG_INF)  # the constraint excludes all tokens
        )  # [N, 1]
        parents = tf.zeros_like(tokens)
        return state._replace(
            position=position,
            done=state.done | is_done[:, 0],
            ids=tf.concat([state.ids, tokens[:, :, None]], axis=2),
            log_probs=state.log_probs + tf.where(was_done, 0.0, log_probs),
            lengths=tf.where(was_done, state.lengths, position),
            cache=cache,
            constraint=self.constraint.advance(state.constraint, parents, tokens),
        )

    def results(self, state: _SampleState) -> Hypotheses:
        """Returns the samples, each as the only hypothesis of a row."""
        is_possible = state.log_probs > NEG_INF  # [N, 1]
        lengths = tf.where(is_possible, state.lengths, 0)
        penalty = length_penalties(lengths, self.alpha, self.penalty_formula)
        return Hypotheses(
            ids=tf.where(is_possible[:, :, None], state.ids[:, :, 1:], PAD),
            scores=state.log_probs / penalty,
            log_probs=state.log_probs,
            lengths=lengths,
        )


def _uniform(seeds: tf.Tensor, num_samples: tf.Tensor, steps: tf.Tensor) -> tf.Tensor:
    """Returns random numbers [B, K, steps] in [0, 1); `steps` only adds later ones."""
    by_step = tf.map_fn(
        lambda seed: tf.random.stateless_uniform([steps, num_samples], seed),
        seeds,
        fn_output_signature=tf.TensorSpec([None, None], tf.float32),
    )  # [B, steps, K]
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
    # Sort only if necessary: sorting the vocabulary takes longer than the whole draw.
    values, tokens = tf.cond(
        tf.logical_or(top_k > 0, top_p < 1.0),
        lambda: _sorted_logits(logits, top_k),
        lambda: (
            logits,
            tf.broadcast_to(tf.range(tf.shape(logits)[2]), tf.shape(logits)),
        ),
    )  # both [N, 1, V], or k instead of V
    probs = tf.nn.softmax(values)
    mass_before = tf.cumsum(probs, axis=2, exclusive=True)
    in_nucleus = tf.logical_or(mass_before < top_p, top_p >= 1.0)
    mass = tf.cumsum(tf.where(in_nucleus, probs, 0.0), axis=2)
    is_below = mass <= uniform[:, :, None] * mass[:, :, -1:]
    index = tf.reduce_sum(tf.cast(is_below, tf.int32), axis=2)  # [N, 1]
    return tf.gather(tokens, index, axis=2, batch_dims=2)


def _sorted_logits(
    logits: tf.Tensor, top_k: int | tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the k largest logits [N, 1, k], best first, and their tokens."""
    vocab_size = tf.shape(logits)[2]
    count = tf.where(top_k > 0, tf.minimum(top_k, vocab_size), vocab_size)
    largest = tf.math.top_k(logits, count)
    return largest.values, largest.indices
