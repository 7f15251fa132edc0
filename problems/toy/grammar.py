"""The abstract syntax of the toy grammar, which the three languages share.

A derivation is a small tree of the dataclasses below, without word order or endings.
`english`, `german` and `french` render the same derivation, so that a sentence has
exactly one translation.
"""

import dataclasses
import enum
from collections.abc import Iterable, Iterator
from typing import Self

from .lexicon import REPORTS, Adjective, Determiner, Noun, Pronoun, Uninflected, Verb


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
        determiner: the determiner; None if there is an owner.
        noun: the head noun.
        plural: whether the phrase is plural.
        adjectives: the adjectives in English order; in French at most one stands on
            either side of the noun.
        owner: the possessor.
        relative: a relative clause, in which a `Trace` stands for this phrase.
    """

    determiner: Determiner | None
    noun: Noun
    plural: bool = False
    adjectives: tuple[Adjective, ...] = ()
    owner: "NounPhrase | None" = None
    relative: "Clause | None" = None

    @property
    def definite(self) -> bool:
        """Whether the phrase is definite."""
        return self.determiner is None or self.determiner.definite


@dataclasses.dataclass(frozen=True)
class Coordination:
    """The man and the woman; it can only be a subject."""

    first: NounPhrase
    second: NounPhrase

    plural = True


@dataclasses.dataclass(frozen=True)
class Trace:
    """The gap that a relative pronoun leaves: no words, but gender and number."""

    noun: Noun
    plural: bool


Subject = NounPhrase | Coordination | Pronoun | Trace
Object = NounPhrase | Pronoun | Trace


@dataclasses.dataclass(frozen=True)
class Place:
    """Behind the old house."""

    preposition: Uninflected
    phrase: NounPhrase


@dataclasses.dataclass(frozen=True)
class Clause:
    """A verb with its arguments.

    Attributes:
        subject: the subject.
        verb: the verb; `BE` takes a predicate or a place.
        tense: the tense of the verb.
        negated: whether the clause is negated.
        object: the direct object, or the object of the verb's preposition.
        recipient: the indirect object.
        predicate: the predicative adjective.
        place: the adverbial of place.
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
    def person(self) -> int:
        """The form that agrees with the subject: 0 for I, 1 for he, 2 for they."""
        if isinstance(self.subject, Pronoun) and self.subject.first_person:
            return 0
        return 2 if self.subject.plural else 1

    @property
    def negates_object(self) -> bool:
        """Whether the object carries the negation: keinen Apfel, pas de pomme."""
        return (
            self.negated
            and isinstance(self.object, NounPhrase)
            and not self.object.definite
        )


@dataclasses.dataclass(frozen=True)
class Subordinate:
    """Because he bought a car."""

    conjunction: Uninflected
    clause: Clause


@dataclasses.dataclass(frozen=True)
class Sentence:
    """A statement or a question.

    Attributes:
        main: the main clause.
        adverb: the adverb of time that begins the sentence.
        subordinate: a subordinate clause, which stands first if it begins with "if".
        is_question: whether it is a question: Does the man buy a car?
    """

    main: Clause
    adverb: Uninflected | None = None
    subordinate: Subordinate | None = None
    is_question: bool = False


Part = tuple[int, str]  # which phrase, clause or sentence, and what part of it


class Word(str):
    """A word that knows which part of a derivation it renders.

    Words of two languages that render the same part are translations of each other.
    """

    part: Part

    def __new__(cls, text: str, part: Part) -> Self:
        """Returns the word."""
        word = super().__new__(cls, text)
        word.part = part
        return word


def tagged(tokens: Iterable[str], whole: object, part: str) -> list[str]:
    """Returns the tokens, of which those without a part, but commas, get this one."""
    key = (id(whole), part)  # equal phrases may occur twice
    return [t if isinstance(t, Word) or t == "," else Word(t, key) for t in tokens]


def clauses(sentence: Sentence) -> Iterator[Clause]:
    """Yields every clause of a sentence, with relative clauses but no "he says"."""
    tops = [] if sentence.main.verb in REPORTS else [sentence.main]
    if sentence.subordinate:
        tops.append(sentence.subordinate.clause)
    for clause in tops:
        yield clause
        for phrase in (clause.subject, clause.object):
            if isinstance(phrase, NounPhrase) and phrase.relative is not None:
                yield phrase.relative


Combination = tuple[str, str, str]


def combinations(sentence: Sentence) -> Iterator[Combination]:
    """Yields every (adjective, noun, verb) combination in a sentence.

    The noun is an argument of the verb, and the adjective describes it. Some of these
    are held out for dev and test.
    """
    for clause in clauses(sentence):
        for phrase in _noun_phrases(clause):
            noun = phrase.noun.english[0]
            for adjective in phrase.adjectives:
                yield adjective.english, noun, clause.verb.name
            if clause.predicate and phrase is clause.subject:
                yield clause.predicate.english, noun, clause.verb.name


def _noun_phrases(clause: Clause) -> Iterator[NounPhrase]:
    """Yields the noun phrases that are arguments of the verb."""
    place = clause.place.phrase if clause.place else None
    for phrase in (clause.subject, clause.object, clause.recipient, place):
        if isinstance(phrase, NounPhrase):
            yield phrase
        elif isinstance(phrase, Coordination):
            yield from (phrase.first, phrase.second)
