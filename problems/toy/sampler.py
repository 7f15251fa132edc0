"""Draws derivations of the toy grammar at random.

Sentences that would be wrong in one of the languages, or ambiguous in English, are
never drawn: an indefinite subject, "every" or "two" in a negated clause; a place in a
negated clause with an object; a relative clause that could include what follows it; a
pronoun for things that are "it" in English and he or she in the other languages.
"""

import dataclasses
import random
from collections.abc import Iterator, Sequence
from typing import TypeGuard

from . import lexicon as words
from .grammar import (
    Clause,
    Coordination,
    NounPhrase,
    Place,
    Sentence,
    Subject,
    Subordinate,
    Tense,
    Trace,
)
from .lexicon import Adjective, Determiner, Kind, Noun, Pronoun, Verb

_WHEN = (
    (words.TODAY, (Tense.PRESENT, Tense.CAN)),
    (words.NOW, (Tense.PRESENT,)),
    (words.TOMORROW, (Tense.FUTURE,)),
    (words.YESTERDAY, (Tense.PAST,)),
)
_DETERMINERS = (words.THE, *words.DETERMINERS)
_PLACE_DETERMINERS = (words.THE, words.THE, words.A, words.MY, words.THIS)
_SUBJECT_PRONOUNS = (words.ME, *words.PRONOUNS)  # twice "I", which has other verb forms
_OBJECT_PRONOUNS = (words.HE, words.SHE, words.THEY)
_PRONOUN = 0.27  # probability that a person is a pronoun


def derivations(seed: int) -> Iterator[Sentence]:
    """Yields random derivations without end; equal seeds give equal ones."""
    sampler = Sampler(random.Random(seed))
    while True:
        yield sampler.sentence()


class Sampler:
    """Draws sentences and their phrases.

    Args:
        rng: the random number generator.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def sentence(self) -> Sentence:
        """Draws a sentence."""
        draw = self._rng.random()
        if draw < 0.27:
            return self._statement()
        if draw < 0.47:
            return self._statement_with_relative()
        if draw < 0.60:
            return Sentence(self._clause(negatable=False), is_question=True)
        if draw < 0.74:
            subject = self._subject(words.PERSON)
            says = Clause(subject, self._rng.choice(words.REPORTS))
            return Sentence(says, None, Subordinate(words.THAT, self._clause()))
        if draw < 0.87:
            main = self._clause()
            return Sentence(main, None, Subordinate(words.BECAUSE, self._clause()))
        condition = Subordinate(words.IF, self._clause((Tense.PRESENT,)))
        main = self._clause((Tense.PRESENT, Tense.FUTURE, Tense.CAN))
        return Sentence(main, None, condition)

    def _statement(self) -> Sentence:
        """Draws a clause; half of them have an adverb of time."""
        if self._maybe(0.5):
            return Sentence(self._clause())
        adverb, tenses = self._rng.choice(_WHEN)
        return Sentence(self._clause(tenses), adverb)

    def _statement_with_relative(self) -> Sentence:
        """Draws a clause, with a relative clause if subject or object allows one."""
        clause = self._clause()
        if _may_have_relative(clause.subject):
            subject = self._with_relative(clause.subject, clause.verb)
            return Sentence(dataclasses.replace(clause, subject=subject))
        ends_with_object = not (clause.recipient or clause.place or clause.negated)
        if _may_have_relative(clause.object) and ends_with_object:
            object_ = self._with_relative(clause.object, clause.verb)
            return Sentence(dataclasses.replace(clause, object=object_))
        return Sentence(clause)

    def _with_relative(self, phrase: NounPhrase, main: Verb) -> NounPhrase:
        """Returns the phrase with a relative clause, with another verb."""
        trace = Trace(phrase.noun, phrase.plural)
        tense = self._rng.choice((Tense.PRESENT, Tense.PAST))
        kind, others = phrase.noun.kind, [v for v in words.VERBS if v is not main]
        by_subject = [verb for verb in others if verb.subject & kind]
        by_object = [  # "whom ... invites", but not "whom ... waits for"
            verb
            for verb in others
            if verb.object & kind
            and not (verb.recipient or verb.english_particle)
            and not verb.english_preposition
        ]
        if by_subject and self._maybe(0.5):
            relative = self._action(trace, self._rng.choice(by_subject), tense)
        else:
            verb = self._rng.choice(by_object)
            relative = Clause(self._subject(verb.subject), verb, tense, object=trace)
        return dataclasses.replace(phrase, relative=relative)

    def _clause(
        self, tenses: Sequence[Tense] = tuple(Tense), negatable: bool = True
    ) -> Clause:
        """Draws a main or subordinate clause, but no relative clause."""
        tense = self._rng.choice(tenses)
        negated = negatable and self._maybe(0.25)
        if tense is not Tense.CAN and self._maybe(0.15):
            return self._description(tense, negated)
        verb = self._rng.choice(words.VERBS)
        return self._action(self._subject(verb.subject, negated), verb, tense, negated)

    def _description(self, tense: Tense, negated: bool) -> Clause:
        """Draws a clause such as: The house is red; the dog is in the garden."""
        if self._maybe(0.35):
            kind = words.ANIMATE | words.SMALL | words.LARGE
            subject = self._subject(kind, negated)
            return Clause(subject, words.BE, tense, negated, place=self._place())
        subject = self._subject(words.EVERYTHING, negated)
        kind = words.ADULT
        known: tuple[Adjective, ...] = ()
        if isinstance(subject, NounPhrase):
            kind, known = subject.noun.kind, subject.adjectives
            if subject.determiner is words.BARE:  # "dogs are clever": les chiens
                subject = dataclasses.replace(subject, determiner=words.THE)
        predicate = self._rng.choice([a for a in _adjectives(kind) if a not in known])
        return Clause(subject, words.BE, tense, negated, predicate=predicate)

    def _action(
        self, subject: Subject, verb: Verb, tense: Tense, negated: bool = False
    ) -> Clause:
        """Draws a clause with the verb's objects, and sometimes a place."""
        object_ = recipient = place = None
        if verb.recipient:
            recipient = self._object(verb.recipient, negated)
        if verb.object:
            is_direct = verb.german_case == "accusative" and not verb.german_preposition
            object_ = self._object(verb.object, negated, is_direct)
        if verb.place and not (negated and object_) and self._maybe(0.3):
            place = self._place()
        return Clause(subject, verb, tense, negated, object_, recipient, None, place)

    def _object(
        self, kind: Kind, negated: bool, takes_negation: bool = False
    ) -> NounPhrase | Pronoun:
        """Draws an object, perhaps one that takes the negation: kein Hund."""
        if kind & words.PERSON and self._maybe(_PRONOUN):
            return self._rng.choice(_OBJECT_PRONOUNS)
        if negated and takes_negation and self._maybe(0.5):
            return self._noun_phrase(kind, determiners=(words.A, words.BARE))
        return self._noun_phrase(kind, definite=negated)

    def _place(self) -> Place:
        """Draws a place, in the singular."""
        preposition = self._rng.choice(words.PREPOSITIONS)
        phrase = self._noun_phrase(
            words.PLACE, determiners=_PLACE_DETERMINERS, plural=False
        )
        return Place(preposition, phrase)

    def _subject(
        self, kind: Kind, negated: bool = False
    ) -> NounPhrase | Coordination | Pronoun:
        """Draws a subject of this kind; in a negated clause a definite one."""
        draw = self._rng.random()
        if draw < 0.28 and kind & words.PERSON:
            return self._rng.choice(_SUBJECT_PRONOUNS)
        if draw < 0.34 and kind & words.PERSON:
            first, second = self._rng.sample(_nouns(words.PERSON), 2)
            return Coordination(self._simple_phrase(first), self._simple_phrase(second))
        return self._noun_phrase(kind, definite=negated)

    def _noun_phrase(
        self,
        kind: Kind,
        definite: bool = False,
        determiners: Sequence[Determiner] = _DETERMINERS,
        plural: bool | None = None,
    ) -> NounPhrase:
        """Draws a phrase without a relative clause.

        Args:
            kind: the kind of noun.
            definite: whether to exclude indefinite determiners.
            determiners: the determiners to choose from.
            plural: whether the phrase is plural; None: it is drawn.
        """
        noun = self._rng.choice(_nouns(kind))
        adjectives = self._adjectives_of(noun)
        if noun.owned and words.THE in determiners and self._maybe(0.1):
            owner = self._simple_phrase(self._rng.choice(_nouns(words.PERSON)))
            plural = self._maybe(0.3) if plural is None else plural
            return NounPhrase(None, noun, plural, adjectives, owner)
        determiner = self._rng.choice(
            [
                determiner
                for determiner in determiners
                if (determiner.definite or not definite)
                and (noun.owned or determiner is not words.MY)
            ]
        )
        if plural is None:
            plural = determiner.plural and (not determiner.singular or self._maybe(0.3))
        return NounPhrase(determiner, noun, plural, adjectives)

    def _simple_phrase(self, noun: Noun) -> NounPhrase:
        """Draws a short definite singular: an owner, or half of a coordination."""
        mine = (words.MY,) if noun.owned else ()
        determiner = self._rng.choice((words.THE, words.THE, words.THIS, *mine))
        adjectives = self._adjectives_of(noun)[:1] if self._maybe(0.5) else ()
        return NounPhrase(determiner, noun, False, adjectives)

    def _adjectives_of(self, noun: Noun) -> tuple[Adjective, ...]:
        """Draws no, one or two adjectives; of two, French puts one on either side."""
        draw = self._rng.random()
        if draw < 0.55:
            return ()
        if draw < 0.93:
            return (self._rng.choice(_adjectives(noun.kind)),)
        sides = (_adjectives(noun.kind, before) for before in (True, False))
        return tuple(self._rng.choice(side) for side in sides if side)

    def _maybe(self, probability: float) -> bool:
        return self._rng.random() < probability


def _may_have_relative(phrase: Subject | None) -> TypeGuard[NounPhrase]:
    """Returns whether a phrase is "the ..." or "a ..." without owner and clause."""
    return isinstance(phrase, NounPhrase) and phrase.determiner in (words.THE, words.A)


def _nouns(kind: Kind) -> tuple[Noun, ...]:
    """Returns the nouns of these kinds."""
    return tuple(noun for noun in words.NOUNS if noun.kind & kind)


def _adjectives(kind: Kind, before: bool | None = None) -> tuple[Adjective, ...]:
    """Returns the adjectives for a kind, or those on one side of a French noun."""
    return tuple(
        adjective
        for adjective in words.ADJECTIVES
        if adjective.kind & kind and before in (None, adjective.before)
    )
