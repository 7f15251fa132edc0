"""Beam search: finds the n best target sequences for every sentence of a batch.

The search goes from left to right. At every step it keeps two sets of at most K
hypotheses (K is the beam size) for each sentence:

- *alive*: the prefixes to be continued, which do not end in EOS, best first;
- *finished*: the best of the hypotheses that end in EOS, best first.

One step extends the alive hypotheses by one token. Each of them has V continuations,
whose log-probability is the hypothesis's plus the token's. Of the K * V continuations
of a sentence, the 2K most likely are its candidates. At most K of them end in EOS, one
for each beam, so at least K do not: the K best of these become the new alive set. Those
that end in EOS compete with the finished hypotheses for the K places of that set. (With
K = 1 the most likely token is the only candidate, and if it is EOS the search ends:
this is greedy search. With two candidates, as in tensor2tensor, the search would
continue when EOS came second.)

Within a step all candidates have the same length, so their log-probabilities are
comparable. Finished hypotheses differ in length, and each token lowers the sum of
log-probabilities, so they are compared by a length-normalized score (Wu et al., 2016,
"GNMT"):

    score = log_prob / penalty(length),    penalty(length) = ((5 + length) / 6) ** alpha

where the length counts EOS. With alpha = 0 the score is the log-probability.
`length_penalty` has other penalties. GNMT's coverage penalty can be added:

    score = log_prob / penalty(length) + beta * sum_s log(min(sum_t p(t, s), 1))

where p(t, s) is the attention weight from target position t to source token s. It is
0 if each source token gets a total weight of 1 or more, and otherwise negative.

*When to stop.* Log-probabilities only decrease. So the score of any continuation of an
alive hypothesis is at most its current log-probability over the largest penalty that it
can still reach (log-probabilities are negative: a larger divisor raises the score).
When the n-th best finished score is at least this bound for the best alive hypothesis,
no continuation can be among the n best, and the sentence is done. The penalty is
monotone in the length, increasing for positive alpha and decreasing for negative, so
it is largest at the next length or at the longest allowed one. The coverage penalty is
at most 0.

*Limits.* Every sentence has its own `max_length`. If it reaches this length with fewer
than n finished hypotheses, the alive ones, cut off, follow them in the result. They are
scored by the same formula.

*Independence.* A sentence that is done is frozen: its sets stay as they are until it
leaves the batch (`decode`). Limits and stopping also depend on the sentence
alone, so its result is the same in any batch.

*Required phrases.* With them each hypothesis has further candidates, and the K alive
ones are chosen by how many of the phrases' tokens they have (`RequiredPhrases`).

PAD is never generated, nor is a token that the constraint excludes; the probabilities
of the other tokens stay as the model gives them. So every score equals what teacher
forcing (`decoding.scoring`) computes for the same sequence.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import keras
import tensorflow as tf

from t2t_keras.decoding.constraint import AllOf, Constraint, RequiredPhrases, only
from t2t_keras.decoding.ensemble import DecodingModel
from t2t_keras.decoding.length_penalty import length_penalty as penalty_of_length
from t2t_keras.decoding.options import LengthPenalty
from t2t_keras.model.backend import Nest
from t2t_keras.text.tokenizer import EOS, PAD

NOTHING = float("-inf")  # the log-probability of a place without a hypothesis

# The inner loop ends when one row in 16 is done, or after 8 steps, because a step
# appends to the cache, and appending copies all that was appended in this loop.
_ROWS_PER_DONE = 16
_STEPS_AT_ONCE = 8
_BLOCK = 64  # of `top_k`

_Penalty: TypeAlias = Callable[[tf.Tensor], tf.Tensor]  # maps lengths to penalties

_LEAST_COVERAGE = 1e-9  # weights in bfloat16 may be 0, whose logarithm is -inf


class Hypotheses(NamedTuple):
    """The results for a batch, best first.

    Where there are fewer than n hypotheses, the other places have no ids, length 0 and
    score -inf.

    Attributes:
        ids: [B, n, T] int32, ending in EOS unless cut off, then padded with PAD.
        scores: [B, n] float32, log_probs over the length penalty, plus the coverage
            penalty if there is one.
        log_probs: [B, n] float32, summed over the tokens.
        lengths: [B, n] int32, the numbers of tokens, EOS included.
    """

    ids: tf.Tensor
    scores: tf.Tensor
    log_probs: tf.Tensor
    lengths: tf.Tensor


def length_penalty(
    length: tf.Tensor, alpha: float | tf.Tensor, kind: LengthPenalty = "gnmt"
) -> tf.Tensor:
    """Returns the length penalty: the divisor of log-probabilities, float32.

    Args:
        length: numbers of tokens, EOS included.
        alpha: the exponent of `gnmt` and `power`.
        kind: `gnmt` is ((5 + length) / 6) ** alpha (Wu et al., 2016); `power` is length
            ** alpha; `average` is the length; `none` is 1.
    """
    length = tf.cast(length, tf.float32)
    if kind != "gnmt":
        length = tf.maximum(length, 1.0)
    return penalty_of_length(length, alpha, kind)


class _Beams(NamedTuple):
    """A set of hypotheses for each sentence, best first.

    Attributes:
        ids: [B, K, 1 + steps]; the first is PAD, the decoder's first input.
        log_probs: [B, K]; -inf marks a place without a hypothesis.
        lengths: [B, K], the numbers of tokens without the first PAD.
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
        max_length: [B], the largest number of tokens in its outputs.
        alive: the hypotheses to be continued.
        finished: the hypotheses that end in EOS.
        cache: the model's cache, in the order of `alive`.
        constraint: the constraint's state, in the order of `alive`.
        required: the state of the required phrases, likewise; () without any.
    """

    position: tf.Tensor
    done: tf.Tensor
    max_length: tf.Tensor
    alive: _Beams
    finished: _Beams
    cache: Nest
    constraint: Nest
    required: Nest


def beam_search(
    model: DecodingModel,
    source: tf.Tensor,
    *,
    beam_size: int | tf.Tensor,
    alpha: float | tf.Tensor,
    max_length: tf.Tensor,
    n_best: int | tf.Tensor = 1,
    kind: LengthPenalty = "gnmt",
    coverage_penalty: float | tf.Tensor | None = None,
    constraint: Constraint | None = None,
    required: RequiredPhrases | None = None,
    loop: Callable[..., Hypotheses] | None = None,
) -> Hypotheses:
    """Finds the n best target sequences for each sentence; see the module's docstring.

    It runs in a graph or eagerly. Beam size, alpha and n may be tensors: one traced
    function serves them all.

    Args:
        model: the model.
        source: ids [B, S] int32, padded with PAD.
        beam_size: number of hypotheses that the search keeps (K); 1 is greedy search.
        alpha: exponent of the length penalty.
        max_length: [B] int32, the largest number of tokens in each output, EOS
            included. At 0 the output is the empty sequence, with score 0.
        n_best: number of hypotheses to return, at most K.
        kind: see `length_penalty`.
        coverage_penalty: the factor beta of the coverage penalty; None: there is none.
        constraint: restricts what may be generated.
        required: the phrases that each output must contain.
        loop: runs the steps, with the arguments of `decode`; None: `decode`.
    """
    beam_size = tf.convert_to_tensor(beam_size, tf.int32)
    n_best = tf.convert_to_tensor(n_best, tf.int32)
    alpha = tf.convert_to_tensor(alpha, tf.float32)
    constraint = constraint or AllOf()
    penalty = functools.partial(length_penalty, alpha=alpha, kind=kind)

    def step(state: _SearchState) -> _SearchState:
        logits, cache = model.decode_step(
            state.alive.ids[:, :, -1], state.position, state.cache
        )
        allowed = constraint.mask(state.constraint, state.position)
        before = state.alive
        if coverage_penalty is not None:
            covered = tf.clip_by_value(model.coverage(cache), _LEAST_COVERAGE, 1.0)
            total = tf.reduce_sum(tf.math.log(covered), axis=2)
            before = before._replace(coverage=coverage_penalty * total)

        def without_phrases() -> tuple[tf.Tensor, _Beams, tf.Tensor]:
            parents, candidates = _candidates(before, logits, allowed)
            return parents, candidates, tf.zeros_like(candidates.log_probs)

        def with_phrases(required: RequiredPhrases) -> tuple[tf.Tensor, ...]:
            left = state.max_length - state.position
            possible = allowed & required.mask(state.required, left)
            is_next = required.is_next(state.required)
            parents, candidates = tf.nest.map_structure(
                lambda x, y: tf.concat([x, y], 1),
                _candidates(before, logits, possible & ~is_next),
                _candidates(before, logits, possible & is_next),
            )
            tokens = candidates.ids[:, :, -1]
            banks = required.number_of_tokens(state.required, parents, tokens)
            return parents, candidates, banks

        banks = None
        if required is None:
            parents, candidates = _candidates(before, logits, allowed)
        else:
            parents, candidates, banks = tf.cond(
                required.are_wanted(), lambda: with_phrases(required), without_phrases
            )
        alive, best = _next_alive(candidates, beam_size, banks)
        finished = _next_finished(state.finished, candidates, penalty)
        parents = tf.gather(parents, best, batch_dims=1)
        new = state._replace(
            position=state.position + 1,
            alive=where(state.done, _lengthen(state.alive), alive),
            finished=where(state.done, _lengthen(state.finished), finished),
            cache=model.reorder_cache(cache, parents),
            constraint=constraint.advance(
                state.constraint, parents, alive.ids[:, :, -1]
            ),
        )
        if required is not None:
            tokens = alive.ids[:, :, -1]
            after = required.advance(state.required, parents, tokens)
            new = new._replace(required=after)
        is_at_limit = new.position >= state.max_length
        # No continuation of an alive hypothesis can get among the n best. That also
        # holds when none is alive: both sides may then be -inf.
        largest = tf.maximum(penalty(new.position + 1), penalty(state.max_length))
        attainable = new.alive.log_probs[:, 0] / largest
        nth_best = tf.gather(_scores(new.finished, penalty), n_best - 1, axis=1)
        is_complete = nth_best >= attainable
        return new._replace(done=state.done | is_at_limit | is_complete)

    start = _start(model, source, beam_size, max_length, constraint)
    if coverage_penalty is not None:
        start = start._replace(cache=model.track_coverage(start.cache, source))
    if required is not None:
        start = start._replace(required=required.init(beam_size))
    return (loop or decode)(model, start, step, lambda s: _ranked(s, penalty, n_best))


def _start(
    model: DecodingModel,
    source: tf.Tensor,
    beam_size: tf.Tensor,
    max_length: tf.Tensor,
    constraint: Constraint,
) -> _SearchState:
    """Returns the state before the first step: one empty hypothesis is alive.

    The other K - 1 places are empty. If all K held the empty hypothesis, the first step
    would fill the beam with K copies of the best token.
    """
    shape = tf.stack([tf.shape(source)[0], beam_size])
    nothing = _Beams(
        ids=tf.fill(tf.concat([shape, [1]], 0), PAD),
        log_probs=tf.fill(shape, NOTHING),
        lengths=tf.zeros(shape, tf.int32),
        coverage=tf.zeros(shape),
    )
    is_first = tf.range(beam_size) == 0
    return _SearchState(
        position=tf.constant(0),
        done=max_length <= 0,
        max_length=max_length,
        alive=nothing._replace(log_probs=tf.where(is_first, 0.0, nothing.log_probs)),
        finished=nothing,
        cache=model.start_cache(model.encode(source), source, beam_size),
        constraint=constraint.init(source, beam_size),
        required=(),
    )


def _candidates(
    alive: _Beams, logits: tf.Tensor, allowed: tf.Tensor
) -> tuple[tf.Tensor, _Beams]:
    """Extends the alive hypotheses by one token.

    The 2K best of all K * V continuations are among the 2K best of each beam. So the
    latter are found first, by a search in shorter rows.

    Args:
        alive: K hypotheses for each sentence.
        logits: [B, K, V], the logits of their next tokens.
        allowed: boolean, broadcasts to [B, K, V].

    Returns:
        The beam [B, 2K] that each of the 2K candidates continues, and the candidates.
    """
    beam_size, vocab_size = tf.shape(logits)[1], logits.shape[2]
    count = tf.where(beam_size == 1, 1, 2 * beam_size)
    per_beam = tf.minimum(count, vocab_size)
    allowed = tf.logical_and(allowed, ~only(PAD, vocab_size))
    # Only the best logits become log-probabilities: there are V of the others.
    best_logits, tokens = top_k(tf.where(allowed, logits, NOTHING), per_beam)
    log_total = tf.reduce_logsumexp(logits, axis=2, keepdims=True)
    log_probs = tf.expand_dims(alive.log_probs, 2) + (best_logits - log_total)

    row = [-1, beam_size * per_beam]
    count = tf.minimum(count, beam_size * per_beam)
    log_probs, best = tf.math.top_k(tf.reshape(log_probs, row), count)
    parents = best // per_beam
    tokens = tf.gather(tf.reshape(tokens, row), best, batch_dims=1)
    extended = _gather(alive, parents)
    return parents, _Beams(
        ids=tf.concat([extended.ids, tf.expand_dims(tokens, 2)], axis=2),
        log_probs=log_probs,
        lengths=extended.lengths + 1,
        coverage=extended.coverage,
    )


def _next_alive(
    candidates: _Beams, beam_size: tf.Tensor, banks: tf.Tensor | None
) -> tuple[_Beams, tf.Tensor]:
    """Returns K candidates that do not end in EOS, best first, and their indices.

    Args:
        candidates: N candidates.
        beam_size: K.
        banks: [B, N] float32: the best of each bank are chosen, then the second best of
            each, and so on; None: the K best are.
    """
    is_end = candidates.ids[:, :, -1] == EOS
    going_on = candidates._replace(
        log_probs=tf.where(is_end, NOTHING, candidates.log_probs)
    )
    if banks is None:
        return _best(going_on, going_on.log_probs, beam_size)
    mine, other = going_on.log_probs[:, :, None], going_on.log_probs[:, None, :]
    is_better = other > mine
    is_same_bank = banks[:, :, None] == banks[:, None, :]
    ranks = tf.math.count_nonzero(is_better & is_same_bank, axis=2, dtype=tf.float32)
    ranks = tf.where(going_on.log_probs > NOTHING, ranks, float("inf"))
    # Among equal ranks, the more likely one comes first.
    order = tf.argsort(-going_on.log_probs, stable=True)
    sorted_ranks = tf.gather(ranks, order, batch_dims=1)
    chosen = tf.gather(
        order, tf.argsort(sorted_ranks, stable=True)[:, :beam_size], batch_dims=1
    )
    alive = _gather(going_on, chosen)
    alive, best = _best(alive, alive.log_probs, beam_size)
    return alive, tf.gather(chosen, best, batch_dims=1)


def _next_finished(finished: _Beams, candidates: _Beams, penalty: _Penalty) -> _Beams:
    """Returns the K best of the finished hypotheses and the newly finished ones."""
    is_end = candidates.ids[:, :, -1] == EOS
    ended = candidates._replace(
        log_probs=tf.where(is_end, candidates.log_probs, NOTHING)
    )
    both = tf.nest.map_structure(
        lambda x, y: tf.concat([x, y], 1), _lengthen(finished), ended
    )
    beams, _ = _best(both, _scores(both, penalty), tf.shape(finished.log_probs)[1])
    return beams


def _ranked(state: _SearchState, penalty: _Penalty, n_best: tf.Tensor) -> Hypotheses:
    """Returns the n best: finished ones, then alive ones, then empty places."""
    both = tf.nest.map_structure(
        lambda x, y: tf.concat([x, y], 1), state.finished, state.alive
    )
    is_taken = tf.cast(both.log_probs > NOTHING, tf.float32)
    # Both sets are in order, and top_k keeps the order of equals.
    beams, _ = _best(both, is_taken, n_best)
    is_taken = beams.log_probs > NOTHING
    return Hypotheses(
        ids=tf.where(is_taken[:, :, None], beams.ids[:, :, 1:], PAD),
        scores=_scores(beams, penalty),
        log_probs=beams.log_probs,
        lengths=tf.where(is_taken, beams.lengths, 0),
    )


def _scores(beams: _Beams, penalty: _Penalty) -> tf.Tensor:
    """Returns log-probabilities over length penalties, plus coverage penalties."""
    return beams.log_probs / penalty(beams.lengths) + beams.coverage


def _best(beams: _Beams, keys: tf.Tensor, count: tf.Tensor) -> tuple[_Beams, tf.Tensor]:
    """Returns the hypotheses with the largest keys, in order, and their indices."""
    best = tf.math.top_k(keys, count).indices
    return _gather(beams, best), best


def _gather(beams: _Beams, indices: tf.Tensor) -> _Beams:
    """Returns the hypotheses at the given indices [B, any]."""
    return tf.nest.map_structure(lambda x: tf.gather(x, indices, batch_dims=1), beams)


def _lengthen(beams: _Beams) -> _Beams:
    """Returns the same hypotheses with one more column of PAD."""
    return beams._replace(ids=tf.pad(beams.ids, [[0, 0], [0, 0], [0, 1]]))


def decode(
    model: DecodingModel,
    start: Nest,
    step: Callable[[Nest], Nest],
    results: Callable[[Nest], Hypotheses],
) -> Hypotheses:
    """Runs steps until all rows are done, and returns their results.

    A row is a sentence with its K hypotheses, or one sample. Some rows are done long
    before others. In a batch of fixed size their share of the later steps would be
    wasted: almost half of all steps in translations of news. So the rows that are done
    leave the batch. This copies the model's cache, so there are two loops: the inner
    one runs steps until enough rows are done, then the outer one selects the others.

    The state is a NamedTuple. Its field `position` is a scalar, the number of steps
    done; `done` [B] tells which rows have their results; `cache` is the model's. All
    other tensors have one element for each row along their first axis.

    Args:
        model: the model, to which the cache belongs.
        start: the state before the first step.
        step: maps a state to the next one. It must not change the results of rows that
            are done.
        results: maps a state to the results of its rows, with a column of ids for each
            step done.
    """
    # The shape invariants, valid for any batch.
    shapes = tf.nest.map_structure(
        lambda x: tf.TensorShape([None] * x.shape.rank), start
    )
    shapes = shapes._replace(
        cache=keras.tree.map_structure_up_to(
            start.cache,
            lambda shape: tf.TensorShape([None, *shape[1:]]),
            model.cache_shapes(start.cache),
        )
    )

    def run_steps(
        is_active: tf.Tensor, found: Hypotheses, state: Nest
    ) -> tuple[tf.Tensor, Hypotheses, Nest]:
        is_left = tf.where(~state.done)[:, 0]
        state = select(model, state, tf.cast(is_left, tf.int32))
        last = state.position + _STEPS_AT_ONCE

        def few_are_done(state: Nest) -> tf.Tensor:
            done = tf.math.count_nonzero(state.done, dtype=tf.int32)
            few = _ROWS_PER_DONE * done < tf.size(state.done)
            return few & (state.position < last)

        (state,) = tf.while_loop(
            few_are_done,
            lambda state: (step(state),),
            (state,),
            shape_invariants=(shapes,),
        )
        # The row that each active sentence has in the state.
        rows = tf.maximum(tf.cumsum(tf.cast(is_active, tf.int32)) - 1, 0)
        new = tf.nest.map_structure(lambda x: tf.gather(x, rows), results(state))
        more = tf.shape(new.ids)[2] - tf.shape(found.ids)[2]
        old = found._replace(ids=tf.pad(found.ids, [[0, 0], [0, 0], [0, more]]))
        found = where(is_active, new, old)
        return is_active & ~tf.gather(state.done, rows), found, state

    found = results(start)
    ranks = tf.nest.map_structure(
        lambda x: tf.TensorShape([None] * x.shape.rank), found
    )
    _, found, _ = tf.while_loop(
        lambda is_active, *_: tf.reduce_any(is_active),
        run_steps,
        (~start.done, found, start),
        shape_invariants=(tf.TensorShape([None]), ranks, shapes),
    )
    return found


def select(model: DecodingModel, state: Nest, rows: tf.Tensor) -> Nest:
    """Returns the state of the given rows."""
    others = {
        name: tf.nest.map_structure(lambda x: tf.gather(x, rows), value)
        for name, value in state._asdict().items()
        if name not in ("position", "cache")
    }
    return state._replace(cache=model.select_rows(state.cache, rows), **others)


def where(condition: tf.Tensor, first: Nest, second: Nest) -> Nest:
    """Returns the first nest in the rows where the condition holds, else the second."""
    return tf.nest.map_structure(
        lambda x, y: tf.where(
            tf.reshape(condition, [-1] + [1] * (x.shape.rank - 1)), x, y
        ),
        first,
        second,
    )


def top_k(values: tf.Tensor, k: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the k largest values of each row, in order, and their indices.

    The row is divided into blocks. The k largest values are in the k blocks with the
    largest maxima, so only these blocks are searched. On a CPU this takes half the time
    of `tf.math.top_k` for 8,000 values, and a quarter for 32,000. Of equal values the
    first comes first, as in `tf.math.top_k`.

    Args:
        values: [B, K, V], float, V known.
        k: scalar, at most V.

    Returns:
        The values [B, K, k] and their int32 indices [B, K, k].
    """
    batch, beams = tf.unstack(tf.shape(values)[:2])
    size = values.shape[2]
    rows = tf.reshape(values, [batch * beams, size])
    filled = tf.pad(rows, [[0, 0], [0, -size % _BLOCK]], constant_values=NOTHING)
    blocks = tf.reshape(filled, [batch * beams, -1, _BLOCK])
    maxima = tf.reduce_max(blocks, axis=2)
    count = tf.minimum(k, tf.shape(maxima)[1])
    best = tf.sort(tf.math.top_k(maxima, count, sorted=False).indices, axis=1)
    searched = tf.reshape(tf.gather(blocks, best, batch_dims=1), [batch * beams, -1])
    largest, places = tf.math.top_k(searched, k)
    places = tf.gather(best, places // _BLOCK, batch_dims=1) * _BLOCK + places % _BLOCK
    shape = [batch, beams, k]
    return tf.reshape(largest, shape), tf.reshape(places, shape)
