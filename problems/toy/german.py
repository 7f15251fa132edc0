"""German: renders a derivation as a sentence.

The finite verb is second in a main clause, first in a question and last in a
subordinate clause; the rest of the verb (particle, participle, infinitive) closes the
clause; between them are the objects, "nicht" and the place.
"""

from collections.abc import Sequence
from typing import Literal, get_args

from . import lexicon as words
from .grammar import (
    Clause,
    Coordination,
    NounPhrase,
    Part,
    Sentence,
    Subject,
    Tense,
    Trace,
    Word,
    tagged,
)
from .lexicon import Adjective, Noun, Pronoun

Case = Literal["nominative", "accusative", "dative", "genitive"]
_CASES = get_args(Case)

# Endings in the four cases, each for masculine, feminine, neuter, plural; - is none.
_ARTICLES = ("der", "die", "das")
_PLURAL = 3
# dies-, jed-; alt- after no article or a number (plural only)
_STRONG = ("er e es e", "en e es e", "em er em en", "es er es er")
# ein-, kein-, mein-
_EIN = ("- e - e", "en e - e", "em er em en", "es er es er")
# alt- after der, dieser, jeder
_WEAK = ("e e e en", "en e e en", "en en en en", "en en en en")
# alt- after ein, kein, mein
_MIXED = ("er e es en", "en e es en", "en en en en", "en en en en")
_DER = ("der die das die", "den die das die", "dem der dem den", "des der des der")
_RELATIVE = ("der die das die", "den die das die", "dem der dem denen")

# Determiners: stem, its endings, the endings of the adjectives after it.
_DETERMINERS = {
    words.THE: ("", _DER, _WEAK),
    words.A: ("ein", _EIN, _MIXED),
    words.MY: ("mein", _EIN, _MIXED),
    words.THIS: ("dies", _STRONG, _WEAK),
    words.EVERY: ("jed", _STRONG, _WEAK),
}

# Auxiliaries by subject: ich, er, sie (plural).
_HABEN = ("habe", "hat", "haben")
_WERDEN = ("werde", "wird", "werden")
_KOENNEN = ("kann", "kann", "können")
_WAR = ("war", "war", "waren")


def render(sentence: Sentence) -> str:
    """Returns the sentence."""
    return _written(_tokens(sentence), "?" if sentence.is_question else ".")


def parts(sentence: Sentence) -> list[Part]:
    """Returns the part that each word of `render` renders."""
    return [token.part for token in _tokens(sentence) if isinstance(token, Word)]


def _tokens(sentence: Sentence) -> list[str]:
    """The words, and the commas between them."""
    main, subordinate = sentence.main, sentence.subordinate
    if sentence.is_question:
        return _verb_first(main)
    if sentence.adverb:
        adverb = tagged([sentence.adverb.german], sentence, "adverb")
        return [*adverb, *_verb_first(main)]
    if not subordinate:
        return _verb_second(main)
    conjunction = tagged([subordinate.conjunction.german], sentence, "if")
    dependent = [*conjunction, *_verb_last(subordinate.clause)]
    if subordinate.conjunction is words.IF:
        return [*dependent, ",", *_verb_first(main)]
    return [*_verb_second(main), ",", *dependent]


def _written(tokens: list[str], stop: str) -> str:
    """Joins the words; adjacent commas become one, and a final comma is removed."""
    sentence = " ".join(tokens).replace(" ,", ",").replace(",,", ",")
    return sentence[0].upper() + sentence[1:].removesuffix(",") + stop


def _verb_second(clause: Clause) -> list[str]:
    """Der Mann ruft den Jungen an."""
    finite, end = _verb(clause)
    tokens = [*_subject(clause), finite, *_middle(clause), *end]
    return tagged(tokens, clause, "verb")


def _verb_first(clause: Clause) -> list[str]:
    """Ruft der Mann den Jungen an; heute ruft der Mann den Jungen an."""
    finite, end = _verb(clause)
    tokens = [finite, *_subject(clause), *_middle(clause), *end]
    return tagged(tokens, clause, "verb")


def _verb_last(clause: Clause) -> list[str]:
    """Dass der Mann den Jungen anruft, angerufen hat."""
    finite, end = _verb(clause)
    if clause.verb.german_particle and clause.tense is Tense.PRESENT:
        finite, end = clause.verb.german_particle + finite, []
    tokens = [*_subject(clause), *_middle(clause), *end, finite]
    return tagged(tokens, clause, "verb")


def _subject(clause: Clause) -> list[str]:
    return tagged(_phrase(clause.subject, "nominative"), clause, "subject")


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
    finite = forms[clause.person]
    if clause.tense in (Tense.FUTURE, Tense.CAN):
        (finite,) = tagged([finite], clause, "tense")
    return finite, end


def _middle(clause: Clause) -> list[str]:
    """Objects, negation, place, and an object with a preposition, in this order."""
    verb, tokens = clause.verb, []
    if clause.recipient:
        recipient = _phrase(clause.recipient, "dative")
        tokens += tagged(recipient, clause, "recipient")
    object_ = []
    if clause.object:
        object_ = _phrase(clause.object, verb.german_case, clause.negates_object)
        # "Keine" translates "not" where English has no article.
        object_ = tagged(object_, clause, "not" if clause.negates_object else "object")
    if not verb.german_preposition:
        tokens += object_
    if clause.negated and not clause.negates_object:
        tokens += tagged(["nicht"], clause, "not")
    if clause.place:
        preposition = clause.place.preposition.german
        place = _phrase(clause.place.phrase, "dative")
        if (preposition, place[0]) == ("in", "dem"):
            preposition, place = "im", place[1:]
        tokens += tagged([preposition, *place], clause, "place")
    if verb.german_preposition:
        object_ = [verb.german_preposition, *object_]
        if verb.english_preposition:
            object_ = tagged(object_, clause, "preposition")
        tokens += object_
    if clause.predicate:
        tokens += tagged([clause.predicate.german], clause, "predicate")
    return tokens


def _phrase(phrase: Subject, case: Case, negated: bool = False) -> list[str]:
    """A subject or an object in its case; a trace has no words."""
    if isinstance(phrase, Coordination):
        first, second = (_noun_phrase(p, case) for p in (phrase.first, phrase.second))
        return [*first, "und", *second]
    if isinstance(phrase, NounPhrase):
        return _noun_phrase(phrase, case, negated)
    return [phrase.german[_CASES.index(case)]] if isinstance(phrase, Pronoun) else []


def _noun_phrase(phrase: NounPhrase, case: Case, negated: bool = False) -> list[str]:
    """Determiner, adjectives, noun, owner in the genitive, relative clause."""
    determiner, adjective_endings = _determiner(phrase, case, negated)
    if phrase.determiner is not words.BARE:
        determiner = tagged(determiner, phrase, "determiner")
    ending = _ending(adjective_endings, phrase, case)
    tokens = [
        *determiner,
        *(
            Word(_inflected(adjective, ending), (id(phrase), adjective.english))
            for adjective in phrase.adjectives
        ),
        *tagged([_noun(phrase.noun, phrase.plural, case)], phrase, "noun"),
    ]
    if phrase.owner:
        tokens += _noun_phrase(phrase.owner, "genitive")
    if phrase.relative:
        tokens += [",", *_relative(phrase.relative), ","]
    return tokens


def _determiner(
    phrase: NounPhrase, case: Case, negated: bool
) -> tuple[list[str], Sequence[str]]:
    """The determiner, and the endings of the adjectives after it."""
    determiner = phrase.determiner or words.THE  # an owner follows
    if determiner in (words.A, words.BARE) and negated:
        return ["kein" + _ending(_EIN, phrase, case)], _MIXED
    if determiner is words.BARE:
        return [], _STRONG
    if determiner is words.TWO:
        return ["zwei"], _STRONG
    stem, endings, adjective_endings = _DETERMINERS[determiner]
    return [stem + _ending(endings, phrase, case)], adjective_endings


def _ending(table: Sequence[str], phrase: NounPhrase | Trace, case: Case) -> str:
    """Looks up a table of endings."""
    column = _PLURAL if phrase.plural else _ARTICLES.index(phrase.noun.german_article)
    return table[_CASES.index(case)].split()[column].strip("-")


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
    pronoun = tagged([_ending(_RELATIVE, trace, case)], relative, "relative")
    return [*pronoun, *_verb_last(relative)]
