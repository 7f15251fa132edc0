"""Beam search: finds the n best target sequences for each sentence of a batch.

The search goes from left to right. At every step it keeps two sets of at most K
hypotheses (K is the beam size) for each sentence, best first:

- *alive*: prefixes to be continued, which do not end in EOS;
- *finished*: the best hypotheses that end in EOS.

One step extends the alive hypotheses by one token. The 2K most likely of a sentence's
K * V continuations are its candidates. At most K of them end in EOS, one for each beam,
so at least K do not: the K best of these become the new alive set. Those that end in
EOS compete with the finished hypotheses for the K slots of that set. (With K = 1 the
most likely token is the only candidate: this is greedy search. With two candidates, as
in tensor2tensor, the search would continue when EOS came second.)

Finished hypotheses differ in length, and each token lowers the sum of
log-probabilities, so they are compared by a length-normalized score (Wu et al., 2016,
"GNMT"):

    score = log_prob / penalty(length),    penalty(length) = ((5 + length) / 6) ** alpha

where the length counts EOS. With alpha = 0 the score is the log-probability.
`length_penalty` has other formulas. GNMT's coverage penalty can be added:

    score = log_prob / penalty(length) + beta * sum_s log(min(sum_t p(t, s), 1))

where p(t, s) is the attention weight from target position t to source token s.

*When to stop.* Log-probabilities only decrease, and the coverage penalty is at most 0.
So the score of any continuation of an alive hypothesis is at most its current
log-probability over the largest penalty that it can still reach (log-probabilities are
negative: a larger divisor raises the score). When the n-th best finished score is at
least this bound for the best alive hypothesis, no continuation can be among the n best,
and the sentence is done. The penalty is monotone in the length, so it is largest at the
next length or at the maximum length.

*Limits.* Every sentence has its own `max_length`. If it reaches this length with fewer
than n finished hypotheses, the alive ones, cut off, follow them in the result.

*Independence.* A sentence that is done is frozen until it leaves the batch
(`decode_loop`). So its result is the same in any batch.

PAD is never generated, nor is a token that the constraint excludes; the probabilities
of the other tokens stay as the model gives them. So every score equals what teacher
forcing (`Translator.score`) computes for the same sequence.

Shapes: B sentences, K beams, N candidates, V tokens of the vocabulary, S source tokens,
T tokens so far.
"""

import dataclasses
from typing import NamedTuple

import tensorflow as tf

from t2t_keras.decoding.candidates import BeamAllocation
from t2t_keras.decoding.constraint import AllOf, Constraint, allow_only_mask
from t2t_keras.decoding.ensemble import DecodingModel
from t2t_keras.decoding.search_loop import (
    NEG_INF,
    Hypotheses,
    SearchLoop,
    length_penalties,
    where_rows,
)
from t2t_keras.model.backend import Nest
from t2t_keras.problem import LengthPenalty
from t2t_keras.text.vocabulary import EOS, PAD

_MIN_COVERAGE = 1e-9  # weights in bfloat16 may be 0, whose logarithm is -inf


def beam_search(
    model: DecodingModel,
    source: tf.Tensor,
    *,
    beam_size: int | tf.Tensor,
    alpha: float | tf.Tensor,
    max_length: tf.Tensor,
    n_best: int | tf.Tensor = 1,
    penalty_formula: LengthPenalty = "gnmt",
    coverage_penalty: float | tf.Tensor | None = None,
    constraint: Constraint | None = None,
    allocation: BeamAllocation | None = None,
    loop: SearchLoop | None = None,
) -> Hypotheses:
    """Finds the n best target sequences for each sentence; see the module's docstring.

    It runs in a graph or eagerly. Beam size, alpha and n may be tensors: one traced
    function serves all their values.

    Args:
        model: the model.
        source: ids [B, S] int32, padded with PAD.
        beam_size: number of hypotheses that the search keeps (K); 1 is greedy search.
        alpha: exponent of the length penalty.
        max_length: [B] int32, the maximum number of tokens in each output, EOS
            included. At 0 the output is the empty sequence, with score 0.
        n_best: number of hypotheses to return, at most K.
        penalty_formula: see `length_penalty`.
        coverage_penalty: the factor beta of the coverage penalty; None: there is none.
        constraint: restricts what may be generated.
        allocation: chooses the candidates; None: the most likely ones.
        loop: runs the steps; None: the loop whose ids and cache grow.
    """
    search = _BeamSearch(
        model=model,
        beam_size=tf.convert_to_tensor(beam_size, tf.int32),
        n_best=tf.convert_to_tensor(n_best, tf.int32),
        alpha=tf.convert_to_tensor(alpha, tf.float32),
        penalty_formula=penalty_formula,
        coverage_penalty=coverage_penalty,
        constraint=constraint or AllOf(),
        allocation=allocation or BeamAllocation(),
        loop=loop or SearchLoop(),
    )
    state = search.init(source, max_length)
    return search.loop.run(model, state, search.step, search.results)


class Beams(NamedTuple):
    """A set of hypotheses for each sentence, best first.

    Attributes:
        ids: [B, K, 1 + T] or more columns, see `SearchLoop`; the first is PAD, the
            decoder's first input. They are int64, and lengths float32: a GPU keeps
            int32 tensors in the host's memory.
        log_probs: [B, K]; -inf marks an empty slot.
        lengths: [B, K], numbers of tokens without the first PAD.
        coverage: [B, K], the coverage penalty, at most 0.
    """

    ids: tf.Tensor
    log_probs: tf.Tensor
    lengths: tf.Tensor
    coverage: tf.Tensor


class _SearchState(NamedTuple):
    """The loop variables.

    Attributes:
        position: scalar, the number of steps done.
        done: [B], whether a sentence is frozen.
        max_length: [B], the maximum number of tokens in its outputs.
        alive: the hypotheses to be continued.
        finished: the hypotheses that end in EOS.
        cache: the model's cache, in the order of `alive`.
        constraint: the constraint's state, in the order of `alive`.
        allocation: the state of the beam allocation, in the order of `alive`.
    """

    position: tf.Tensor
    done: tf.Tensor
    max_length: tf.Tensor
    alive: Beams
    finished: Beams
    cache: Nest
    constraint: Nest
    allocation: Nest


@dataclasses.dataclass(frozen=True, kw_only=True)
class _BeamSearch:
    """The steps of a search; see the arguments of `beam_search`."""

    model: DecodingModel
    beam_size: tf.Tensor
    n_best: tf.Tensor
    alpha: tf.Tensor
    penalty_formula: LengthPenalty
    coverage_penalty: float | tf.Tensor | None
    constraint: Constraint
    allocation: BeamAllocation
    loop: SearchLoop

    def init(self, source: tf.Tensor, max_length: tf.Tensor) -> _SearchState:
        """Returns the state before the first step: one empty hypothesis is alive.

        The other K - 1 slots are empty. If all K held the empty hypothesis, the first
        step would fill the beam with K copies of the best token.
        """
        shape = tf.stack([tf.shape(source)[0], self.beam_size])
        empty = Beams(
            ids=self.loop.start_ids(tf.zeros(tf.concat([shape, [1]], 0), tf.int64)),
            log_probs=tf.fill(shape, NEG_INF),  # [B, K]
            lengths=tf.zeros(shape),  # [B, K]
            coverage=tf.zeros(shape),  # [B, K]
        )
        is_top = tf.range(self.beam_size) == 0  # [K]
        cache = self.model.start_cache(
            self.model.encode(source), source, self.beam_size
        )
        if self.coverage_penalty is not None:
            cache = self.model.track_coverage(cache, source)
        return _SearchState(
            position=tf.constant(0),
            done=max_length <= 0,
            max_length=max_length,
            alive=empty._replace(log_probs=tf.where(is_top, 0.0, empty.log_probs)),
            finished=empty,
            cache=cache,
            constraint=self.constraint.init(source, self.beam_size),
            allocation=self.allocation.init(self.beam_size),
        )

    def step(self, state: _SearchState) -> _SearchState:
        """Extends the alive hypotheses by one token."""
        last_tokens = state.alive.ids[:, :, state.position]  # [B, K]
        # [B, K, V]
        logits, cache = self.model.decode_step(last_tokens, state.position, state.cache)
        allowed = tf.logical_and(
            self.constraint.mask(state.constraint, state.position),
            ~allow_only_mask(PAD, logits.shape[2]),
        )  # broadcasts to [B, K, V]
        candidates = self.allocation.candidates(
            state.allocation,
            state.alive.log_probs,
            logits,
            allowed,
            state.max_length - state.position,
        )
        alive = _gather(self._with_coverage(state.alive, cache), candidates.parents)
        extended = alive._replace(  # N hypotheses
            ids=self.loop.append(alive.ids, candidates.tokens, state.position),
            log_probs=candidates.log_probs,
            lengths=alive.lengths + 1.0,
        )
        is_eos = candidates.tokens == EOS  # [B, N]

        eos_log_probs = tf.where(is_eos, candidates.log_probs, NEG_INF)  # [B, N]
        ended = extended._replace(log_probs=eos_log_probs)
        padded_finished = self._append_pad(state.finished)
        beams = _concat_beams(padded_finished, ended)  # K + N
        best = tf.math.top_k(self._scores(beams), self.beam_size).indices
        finished = _gather(beams, best)

        open_log_probs = tf.where(is_eos, NEG_INF, candidates.log_probs)  # [B, N]
        indices = self.allocation.select(
            state.allocation, candidates, open_log_probs, self.beam_size
        )  # [B, K]
        alive = _gather(extended._replace(log_probs=open_log_probs), indices)
        parents = _gather(candidates.parents, indices)  # [B, K]
        tokens = _gather(candidates.tokens, indices)  # [B, K]
        added = tf.cast(parents, tf.int32), tf.cast(tokens, tf.int32)

        next_state = state._replace(
            position=state.position + 1,
            alive=where_rows(state.done, self._append_pad(state.alive), alive),
            finished=where_rows(state.done, padded_finished, finished),
            cache=self.model.reorder_cache(cache, parents),
            constraint=self.constraint.advance(state.constraint, *added),
            allocation=self.allocation.advance(state.allocation, *added),
        )
        return next_state._replace(done=state.done | self._is_complete(next_state))

    def results(self, state: _SearchState) -> Hypotheses:
        """Returns the n best: finished ones, then alive ones, then empty slots."""
        beams = _concat_beams(state.finished, state.alive)  # 2K
        is_filled = tf.cast(beams.log_probs > NEG_INF, tf.float32)  # [B, 2K]
        # Both sets are in order, and top_k keeps the order of equals.
        beams = _gather(beams, tf.math.top_k(is_filled, self.n_best).indices)
        is_filled = beams.log_probs > NEG_INF  # [B, n]
        ids = tf.where(is_filled[:, :, None], beams.ids[:, :, 1:], PAD)
        return Hypotheses(
            ids=tf.cast(ids, tf.int32),
            scores=self._scores(beams),
            log_probs=beams.log_probs,
            lengths=tf.cast(tf.where(is_filled, beams.lengths, 0.0), tf.int32),
        )

    def _with_coverage(self, alive: Beams, cache: Nest) -> Beams:
        """Returns the alive hypotheses with the coverage penalty after this step."""
        if self.coverage_penalty is None:
            return alive
        weights = self.model.coverage(cache)  # [B, K, S]
        covered = tf.math.log(tf.clip_by_value(weights, _MIN_COVERAGE, 1.0))
        total = tf.reduce_sum(covered, axis=2)  # [B, K]
        return alive._replace(coverage=self.coverage_penalty * total)

    def _append_pad(self, beams: Beams) -> Beams:
        """Returns the same hypotheses with as many columns of ids as longer ones."""
        return beams._replace(ids=self.loop.append_pad(beams.ids))

    def _is_complete(self, state: _SearchState) -> tf.Tensor:
        """Returns which sentences are at their limit or have their n best, [B]."""
        max_penalty = tf.maximum(
            self._penalty(state.position + 1), self._penalty(state.max_length)
        )  # [B]
        attainable_score = state.alive.log_probs[:, 0] / max_penalty  # [B]
        nth_score = tf.gather(self._scores(state.finished), self.n_best - 1, axis=1)
        # If no hypothesis is alive, both may be -inf, and the sentence is done as well.
        has_n_best = nth_score >= attainable_score  # [B]
        return (state.position >= state.max_length) | has_n_best

    def _scores(self, beams: Beams) -> tf.Tensor:
        """Returns log-probabilities over length penalties, plus coverage penalties."""
        return beams.log_probs / self._penalty(beams.lengths) + beams.coverage

    def _penalty(self, lengths: tf.Tensor) -> tf.Tensor:
        """Returns the length penalties."""
        return length_penalties(lengths, self.alpha, self.penalty_formula)


def _concat_beams(x: Beams, y: Beams) -> Beams:
    """Returns the hypotheses of both sets, which have equally many columns of ids."""
    return tf.nest.map_structure(lambda x, y: tf.concat([x, y], 1), x, y)


def _gather(nest: Nest, indices: tf.Tensor) -> Nest:
    """Returns the entries of tensors [B, K, ...] at the given indices [B, N]."""
    return tf.nest.map_structure(lambda x: tf.gather(x, indices, batch_dims=1), nest)
