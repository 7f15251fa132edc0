"""French: renders a derivation as a sentence.

Words are ordered and inflected first; then neighbours are contracted in the whole
sentence: de le = du, le enfant = l'enfant.
"""

import itertools
from collections.abc import Sequence

from . import lexicon as words
from .grammar import Clause, Coordination, NounPhrase, Sentence, Subject, Tense, Trace
from .lexicon import Adjective, Pronoun

_VOWELS = tuple("aâeéèêhiîoôuù")  # every h of the lexicon is mute
_ELIDED = ("je", "ne", "le", "la", "de", "que")
_CONTRACTED = {
    ("de", "le"): "du",
    ("de", "les"): "des",
    ("à", "le"): "au",
    ("à", "les"): "aux",
}

# Determiners: masculine, feminine, plural, masculine before a vowel, feminine too.
_DETERMINERS = {
    words.THE: ("le", "la", "les", "le", "la"),
    words.A: ("un", "une", "des", "un", "une"),
    words.BARE: ("un", "une", "des", "un", "une"),
    words.MY: ("mon", "ma", "mes", "mon", "mon"),
    words.THIS: ("ce", "cette", "ces", "cet", "cette"),
    words.EVERY: ("chaque", "chaque", "", "chaque", "chaque"),
    words.TWO: ("", "", "deux", "", ""),
}

# Auxiliaries by subject: je, il, ils.
_AVOIR = ("ai", "a", "ont")
_ETRE = words.BE.french[:3]
_POUVOIR = ("peux", "peut", "peuvent")
_ETAIT = ("étais", "était", "étaient")
_FUTURE_ENDINGS = ("ai", "a", "ont")


def render(sentence: Sentence) -> str:
    """Returns the sentence."""
    tokens = _clause(sentence.main)
    if sentence.is_question:
        tokens = ["est-ce", "que", *tokens]
    if sentence.adverb:
        tokens = [sentence.adverb.french, ",", *tokens]
    if subordinate := sentence.subordinate:
        conjunction = subordinate.conjunction
        dependent = [*conjunction.french.split(), *_clause(subordinate.clause)]
        if conjunction is words.IF:
            tokens = [*dependent, ",", *tokens]
        else:
            tokens += dependent
    return _written(tokens, " ?" if sentence.is_question else ".")


def _written(tokens: list[str], stop: str) -> str:
    """Joins the words: de le = du, le enfant = l'enfant, si il = s'il."""
    joined: list[str] = []
    for token, following in itertools.pairwise([*tokens, ""]):
        pair = (joined[-1], token) if joined else None
        if pair in _CONTRACTED and not _elides(token, following):
            joined[-1] = _CONTRACTED[pair]
        else:
            joined.append(token)
    sentence = ""
    for token, following in itertools.pairwise([*joined, ""]):
        sentence += token[:-1] + "'" if _elides(token, following) else token + " "
    sentence = sentence.rstrip().replace(" ,", ",")
    return sentence[0].upper() + sentence[1:] + stop


def _elides(token: str, following: str) -> bool:
    """Returns whether the word loses its vowel before the next one."""
    if token == "si":
        return following in ("il", "ils")
    return token in _ELIDED and following.startswith(_VOWELS)


def _clause(clause: Clause) -> list[str]:
    """Subject, ne, clitic, verb, pas, objects, predicate, place."""
    subject = clause.subject
    tokens = [*_phrase(subject), *_verb_group(clause), *_object(clause)]
    if isinstance(clause.recipient, NounPhrase):
        tokens += ["à", *_noun_phrase(clause.recipient)]
    if clause.predicate:
        feminine = _is_feminine(subject)
        tokens.append(_inflected(clause.predicate, feminine, subject.plural))
    if clause.place:
        preposition = clause.place.preposition.french.split()
        tokens += [*preposition, *_noun_phrase(clause.place.phrase)]
    return tokens


def _verb_group(clause: Clause) -> list[str]:
    """The verb with its negation around and its clitic before it."""
    verb = clause.verb
    *present, participle, infinitive, stem = verb.french
    clitic, end = _clitic(clause), []
    forms: Sequence[str]
    match clause.tense:
        case Tense.PRESENT:
            forms = present
        case Tense.PAST if verb is words.BE:
            forms = _ETAIT
        case Tense.PAST:
            forms = _ETRE if verb.french_etre else _AVOIR
            end = [_participle(clause, participle)]
        case Tense.FUTURE:
            forms = [stem + ending for ending in _FUTURE_ENDINGS]
        case Tense.CAN:
            forms, end, clitic = _POUVOIR, [*clitic, infinitive], []
    finite = forms[clause.person]
    if clause.negated:
        return ["ne", *clitic, finite, "pas", *end]
    return [*clitic, finite, *end]


def _clitic(clause: Clause) -> list[str]:
    """A pronoun that stands before the verb: le, la, les; lui, leur."""
    if isinstance(clause.recipient, Pronoun):
        return [clause.recipient.french[2]]
    if isinstance(clause.object, Pronoun):
        match clause.verb.french_preposition:
            case "":
                return [clause.object.french[1]]
            case "à":
                return [clause.object.french[2]]
    return []


def _participle(clause: Clause, participle: str) -> str:
    """Inflects a participle: it agrees with the subject or an earlier direct object."""
    agrees_with: Subject | None = None
    if clause.verb.french_etre:
        agrees_with = clause.subject
    elif not (clause.verb.french_preposition or isinstance(clause.object, NounPhrase)):
        agrees_with = clause.object
    if agrees_with is None:
        return participle
    return participle + "e" * _is_feminine(agrees_with) + "s" * agrees_with.plural


def _is_feminine(phrase: Subject) -> bool:
    if isinstance(phrase, Coordination):
        return _is_feminine(phrase.first) and _is_feminine(phrase.second)
    if isinstance(phrase, Pronoun):
        return phrase.feminine
    return phrase.noun.french_article == "une"


def _object(clause: Clause) -> list[str]:
    """An object that follows the verb, maybe with a preposition between them."""
    preposition = clause.verb.french_preposition
    match clause.object:
        case NounPhrase():
            phrase = _noun_phrase(clause.object, clause.negates_object)
            return [preposition, *phrase] if preposition else phrase
        case Pronoun() if preposition == "avec":
            return [preposition, clause.object.french[3]]
    return []


def _phrase(phrase: Subject) -> list[str]:
    """A subject; a trace has no words."""
    if isinstance(phrase, Coordination):
        return [*_noun_phrase(phrase.first), "et", *_noun_phrase(phrase.second)]
    if isinstance(phrase, NounPhrase):
        return _noun_phrase(phrase)
    return [phrase.french[0]] if isinstance(phrase, Pronoun) else []


def _noun_phrase(phrase: NounPhrase, negated: bool = False) -> list[str]:
    """Determiner, adjective, noun, adjective, owner, relative clause."""
    noun = phrase.noun.french[phrase.plural]
    feminine = _is_feminine(phrase)
    before, after = (
        [adjective for adjective in phrase.adjectives if adjective.before is side]
        for side in (True, False)
    )
    tokens = [
        *(_inflected(a, feminine, phrase.plural, noun) for a in before),
        noun,
        *(_inflected(a, feminine, phrase.plural) for a in after),
    ]
    if phrase.determiner in (words.A, words.BARE) and negated:
        determiner = "de"
    elif phrase.determiner is words.BARE and before:
        determiner = "de"  # de vieux chiens, but des chiens noirs
    else:
        forms = _DETERMINERS[phrase.determiner or words.THE]
        if phrase.plural:
            determiner = forms[2]
        else:
            determiner = forms[feminine + 3 * tokens[0].startswith(_VOWELS)]
    tokens = [determiner, *tokens]
    if phrase.owner:
        tokens += ["de", *_noun_phrase(phrase.owner)]
    if phrase.relative:
        about_subject = isinstance(phrase.relative.subject, Trace)
        tokens += ["qui" if about_subject else "que", *_clause(phrase.relative)]
    return tokens


def _inflected(
    adjective: Adjective, feminine: bool, plural: bool, following: str = ""
) -> str:
    """Returns the adjective's form; before a vowel the masculine may differ: vieil."""
    masculine, feminine_form, masculine_plural, before_vowel = adjective.french
    if feminine:
        return feminine_form + "s" * plural
    if plural:
        return masculine_plural
    return before_vowel if following.startswith(_VOWELS) else masculine
