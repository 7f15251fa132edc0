"""The toy grammar: what a sentence says, before any language says it.

A derivation is a small tree of the dataclasses below. Nothing in it is a word order or
an ending: `english`, `german` and `french` each render the same derivation
in their own way, so that a sentence has exactly one translation.
"""

import dataclasses
import enum
from collections.abc import Iterator

from .lexicon import (
    Adjective,
    Adverb,
    Determiner,
    Noun,
    Preposition,
    Pronoun,
    Verb,
)


class Tense(enum.Enum):
    """Tense or modality: sees, saw, will see, can see."""

    PRESENT = enum.auto()
    PAST = enum.auto()
    FUTURE = enum.auto()
    CAN = enum.auto()


@dataclasses.dataclass(frozen=True)
class NounPhrase:
    """The old dog; the king's dog; the dog that sleeps.

    Attributes:
        determiner: None where an owner stands in its place.
        noun: the head.
        plural: its number.
        adjectives: in English order; in French at most one stands on either side.
        owner: whose.
        relative: a clause one of whose phrases is a `Trace` of this one.
    """

    determiner: Determiner | None
    noun: Noun
    plural: bool = False
    adjectives: tuple[Adjective, ...] = ()
    owner: "NounPhrase | None" = None
    relative: "Clause | None" = None

    @property
    def definite(self) -> bool:
        """Whether it can stand where a negation would change an indefinite one."""
        return self.determiner is None or self.determiner.definite


@dataclasses.dataclass(frozen=True)
class Pair:
    """The man and the woman; only ever a subject."""

    first: NounPhrase
    second: NounPhrase


@dataclasses.dataclass(frozen=True)
class Trace:
    """The gap that a relative pronoun leaves: no words, but gender and number."""

    noun: Noun
    plural: bool


Subject = NounPhrase | Pair | Pronoun | Trace
Object = NounPhrase | Pronoun | Trace


@dataclasses.dataclass(frozen=True)
class Place:
    """Behind the old house."""

    preposition: Preposition
    phrase: NounPhrase


@dataclasses.dataclass(frozen=True)
class Clause:
    """One verb and what belongs to it.

    Attributes:
        subject: who.
        verb: `BE` takes a predicate or a place.
        tense: of the verb.
        negated: with "not".
        object: direct, or behind the verb's own preposition.
        recipient: of giving.
        predicate: what the subject is.
        place: where.
    """

    subject: Subject
    verb: Verb
    tense: Tense = Tense.PRESENT
    negated: bool = False
    object: Object | None = None
    recipient: NounPhrase | Pronoun | None = None
    predicate: Adjective | None = None
    place: Place | None = None

    @property
    def negates_object(self) -> bool:
        """Whether the negation lands on the object: keinen Apfel, pas de pomme."""
        return (
            self.negated
            and isinstance(self.object, NounPhrase)
            and not self.object.definite
        )


@dataclasses.dataclass(frozen=True)
class Statement:
    """(Today) the man buys a car."""

    clause: Clause
    adverb: Adverb | None = None


@dataclasses.dataclass(frozen=True)
class Question:
    """Does the man buy a car?"""

    clause: Clause


@dataclasses.dataclass(frozen=True)
class Report:
    """The queen says that the man buys a car."""

    subject: NounPhrase | Pair | Pronoun
    verb: Verb
    clause: Clause


@dataclasses.dataclass(frozen=True)
class Reason:
    """The man sleeps because he bought a car."""

    clause: Clause
    cause: Clause


@dataclasses.dataclass(frozen=True)
class Condition:
    """If the man arrives, he will buy a car."""

    condition: Clause
    clause: Clause


Sentence = Statement | Question | Report | Reason | Condition


def is_plural(subject: Subject) -> bool:
    """The number that a verb agrees with."""
    return isinstance(subject, Pair) or subject.plural


def is_first_person(subject: Subject) -> bool:
    """Whether it is I; every other subject is of the third person."""
    return isinstance(subject, Pronoun) and subject.first_person


def clauses(sentence: Sentence) -> Iterator[Clause]:
    """Yields every clause of a sentence, relative clauses included."""
    tops: tuple[Clause, ...]
    match sentence:
        case Reason():
            tops = (sentence.clause, sentence.cause)
        case Condition():
            tops = (sentence.condition, sentence.clause)
        case _:
            tops = (sentence.clause,)
    for clause in tops:
        yield clause
        for phrase in (clause.subject, clause.object):
            if isinstance(phrase, NounPhrase) and phrase.relative is not None:
                yield phrase.relative


Combination = tuple[str, str, str]


def combinations(sentence: Sentence) -> Iterator[Combination]:
    """Yields every (adjective, noun, verb) that the sentence brings together.

    The noun is an argument of the verb and the adjective describes it. These are what
    the development and the test set hold out.
    """
    for clause in clauses(sentence):
        for phrase in _noun_phrases(clause):
            noun = phrase.noun.english[0]
            for adjective in phrase.adjectives:
                yield adjective.english, noun, clause.verb.name
            if clause.predicate and phrase is clause.subject:
                yield clause.predicate.english, noun, clause.verb.name


def _noun_phrases(clause: Clause) -> Iterator[NounPhrase]:
    """Yields the noun phrases that belong to the verb."""
    place = clause.place.phrase if clause.place else None
    for phrase in (clause.subject, clause.object, clause.recipient, place):
        if isinstance(phrase, NounPhrase):
            yield phrase
        elif isinstance(phrase, Pair):
            yield from (phrase.first, phrase.second)
