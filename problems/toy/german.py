"""German: renders a derivation as a sentence.

The finite verb is second in a main clause, first in a question and last in a
subordinate clause; the rest of the verb (particle, participle, infinitive) closes the
clause; between them are the objects, "nicht" and the place.
"""

from collections.abc import Sequence
from typing import Literal

from . import lexicon as words
from .grammar import (
    Clause,
    Condition,
    Coordination,
    NounPhrase,
    Question,
    Reason,
    Report,
    Sentence,
    Statement,
    Subject,
    Tense,
    Trace,
    is_first_person,
    is_plural,
)
from .lexicon import Adjective, Adverb, Noun, Pronoun

Case = Literal["nominative", "accusative", "dative", "genitive"]
_Endings = dict[Case, str]
_PRONOUN_CASES = ("nominative", "accusative", "dative")

# Endings by case, in the order masculine, feminine, neuter, plural; - is no ending.
_GENDERS = "mfn"
_PLURAL = 3
_STRONG: _Endings = {  # dies-, jed-; alt- after no article or a number (plural only)
    "nominative": "er e es e",
    "accusative": "en e es e",
    "dative": "em er em en",
    "genitive": "es er es er",
}
_EIN: _Endings = {  # ein-, kein-, mein-
    "nominative": "- e - e",
    "accusative": "en e - e",
    "dative": "em er em en",
    "genitive": "es er es er",
}
_WEAK: _Endings = {  # alt- after der, dieser, jeder
    "nominative": "e e e en",
    "accusative": "en e e en",
    "dative": "en en en en",
    "genitive": "en en en en",
}
_MIXED: _Endings = {  # alt- after ein, kein, mein
    "nominative": "er e es en",
    "accusative": "en e es en",
    "dative": "en en en en",
    "genitive": "en en en en",
}
_DER: _Endings = {
    "nominative": "der die das die",
    "accusative": "den die das die",
    "dative": "dem der dem den",
    "genitive": "des der des der",
}
_RELATIVE: _Endings = {
    "nominative": "der die das die",
    "accusative": "den die das die",
    "dative": "dem der dem denen",
}

# Auxiliaries by subject: ich, er, sie (plural).
_HABEN = ("habe", "hat", "haben")
_WERDEN = ("werde", "wird", "werden")
_KOENNEN = ("kann", "kann", "können")
_WAR = ("war", "war", "waren")


def render(sentence: Sentence) -> str:
    """Returns the sentence."""
    match sentence:
        case Statement(clause, Adverb(german=adverb)):
            tokens = [adverb, *_verb_first(clause)]
        case Statement(clause):
            tokens = _verb_second(clause)
        case Question(clause):
            tokens = _verb_first(clause)
        case Report(subject, verb, clause):
            says = _verb_second(Clause(subject, verb))
            tokens = [*says, ",", "dass", *_verb_last(clause)]
        case Reason(clause, cause):
            tokens = [*_verb_second(clause), ",", "weil", *_verb_last(cause)]
        case Condition(condition, clause):
            tokens = ["wenn", *_verb_last(condition), ",", *_verb_first(clause)]
    return _written(tokens, "?" if isinstance(sentence, Question) else ".")


def _written(tokens: list[str], stop: str) -> str:
    """Joins the words; adjacent commas become one, and a final comma is removed."""
    sentence = " ".join(tokens).replace(" ,", ",").replace(",,", ",")
    return sentence[0].upper() + sentence[1:].removesuffix(",") + stop


def _verb_second(clause: Clause) -> list[str]:
    """Der Mann ruft den Jungen an."""
    finite, end = _verb(clause)
    return [*_phrase(clause.subject, "nominative"), finite, *_middle(clause), *end]


def _verb_first(clause: Clause) -> list[str]:
    """Ruft der Mann den Jungen an; heute ruft der Mann den Jungen an."""
    finite, end = _verb(clause)
    return [finite, *_phrase(clause.subject, "nominative"), *_middle(clause), *end]


def _verb_last(clause: Clause) -> list[str]:
    """Dass der Mann den Jungen anruft, angerufen hat."""
    finite, end = _verb(clause)
    if clause.verb.german_particle and clause.tense is Tense.PRESENT:
        finite, end = clause.verb.german_particle + finite, []
    return [*_phrase(clause.subject, "nominative"), *_middle(clause), *end, finite]


def _verb(clause: Clause) -> tuple[str, list[str]]:
    """Returns the finite verb, and the words that close the clause."""
    verb = clause.verb
    *present, participle = verb.german
    infinitive = "sein" if verb is words.BE else verb.german_particle + present[2]
    forms: Sequence[str]
    match clause.tense:
        case Tense.PRESENT:
            forms = present
            end = [verb.german_particle] if verb.german_particle else []
        case Tense.PAST if verb is words.BE:
            forms, end = _WAR, []
        case Tense.PAST:
            forms = words.BE.german if verb.german_sein else _HABEN
            end = [participle]
        case Tense.FUTURE:
            forms, end = _WERDEN, [infinitive]
        case Tense.CAN:
            forms, end = _KOENNEN, [infinitive]
    if is_first_person(clause.subject):
        return forms[0], end
    return forms[2 if is_plural(clause.subject) else 1], end


def _middle(clause: Clause) -> list[str]:
    """Objects, negation, place, and an object with a preposition, in this order."""
    verb, tokens = clause.verb, []
    if clause.recipient:
        tokens += _phrase(clause.recipient, "dative")
    object_ = []
    if clause.object:
        object_ = _phrase(clause.object, verb.german_case, clause.negates_object)
    if not verb.german_preposition:
        tokens += object_
    if clause.negated and not clause.negates_object:
        tokens.append("nicht")
    if clause.place:
        preposition = clause.place.preposition.german
        place = _phrase(clause.place.phrase, "dative")
        if (preposition, place[0]) == ("in", "dem"):
            preposition, place = "im", place[1:]
        tokens += [preposition, *place]
    if verb.german_preposition:
        tokens += [verb.german_preposition, *object_]
    if clause.predicate:
        tokens.append(clause.predicate.german)
    return tokens


def _phrase(phrase: Subject, case: Case, negated: bool = False) -> list[str]:
    """A subject or an object in its case."""
    match phrase:
        case Pronoun():
            return [phrase.german[_PRONOUN_CASES.index(case)]]
        case Coordination(first, second):
            return [*_noun_phrase(first, case), "und", *_noun_phrase(second, case)]
        case Trace():
            return []
        case NounPhrase():
            return _noun_phrase(phrase, case, negated)


def _noun_phrase(phrase: NounPhrase, case: Case, negated: bool = False) -> list[str]:
    """Determiner, adjectives, noun, owner in the genitive, relative clause."""
    determiner, adjective_endings = _determiner(phrase, case, negated)
    ending = _ending(adjective_endings, phrase, case)
    tokens = [
        *determiner,
        *(_inflected(adjective, ending) for adjective in phrase.adjectives),
        _noun(phrase.noun, phrase.plural, case),
    ]
    if phrase.owner:
        tokens += _noun_phrase(phrase.owner, "genitive")
    if phrase.relative:
        tokens += [",", *_relative(phrase.relative), ","]
    return tokens


def _determiner(
    phrase: NounPhrase, case: Case, negated: bool
) -> tuple[list[str], dict[Case, str]]:
    """The determiner, and the endings of the adjectives after it."""
    determiner = phrase.determiner
    if determiner in (words.A, words.BARE) and negated:
        return ["kein" + _ending(_EIN, phrase, case)], _MIXED
    if determiner is words.BARE:
        return [], _STRONG
    if determiner is words.TWO:
        return ["zwei"], _STRONG
    if determiner is words.A:
        return ["ein" + _ending(_EIN, phrase, case)], _MIXED
    if determiner is words.MY:
        return ["mein" + _ending(_EIN, phrase, case)], _MIXED
    if determiner is words.THIS:
        return ["dies" + _ending(_STRONG, phrase, case)], _WEAK
    if determiner is words.EVERY:
        return ["jed" + _ending(_STRONG, phrase, case)], _WEAK
    return [_ending(_DER, phrase, case)], _WEAK  # "the", and before an owner


def _ending(table: dict[Case, str], phrase: NounPhrase | Trace, case: Case) -> str:
    """Looks up a table of endings."""
    column = _PLURAL if phrase.plural else _GENDERS.index(phrase.noun.german_gender)
    return table[case].split()[column].strip("-")


def _inflected(adjective: Adjective, ending: str) -> str:
    """Adds the ending: alt + er, müd(e) + er."""
    return adjective.german.removesuffix("e") + ending


def _noun(noun: Noun, plural: bool, case: Case) -> str:
    """The noun in its case: den Hunden, des Hundes, den Jungen."""
    nominative, genitive, plural_form = noun.german
    if plural:
        is_marked = case != "dative" or plural_form.endswith(("n", "s"))
        return plural_form if is_marked else plural_form + "n"
    if case == "genitive":
        return genitive
    if noun.weak and case != "nominative":
        return plural_form
    return nominative


def _relative(relative: Clause) -> list[str]:
    """Der schläft; den der Mann sieht; dem der Mann hilft."""
    case: Case = "nominative"
    trace: Subject | None = relative.subject
    if not isinstance(trace, Trace):
        trace, case = relative.object, relative.verb.german_case
    assert isinstance(trace, Trace)
    return [_ending(_RELATIVE, trace, case), *_verb_last(relative)]
