"""English: renders a derivation as a Penn Treebank tree."""

from ..parsing.tree import Tree
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
from .lexicon import Pronoun, Uninflected

_STOP = Tree(".", word=".")
_QUESTION_MARK = Tree(".", word="?")
_COMMA = Tree(",", word=",")
_NOT = Tree("RB", word="not")


def text(tree: Tree) -> str:
    """Returns the sentence as it is written: She cannot see the king's dog."""
    sentence = " ".join(tree.words())
    for mark in (".", "?", ",", "'s"):
        sentence = sentence.replace(f" {mark}", mark)
    return sentence.replace("can not", "cannot")


def parts(tree: Tree) -> list[set[Part]]:
    """Returns the parts that each word of `text` renders."""
    found: list[set[Part]] = []
    before = ""
    for word in tree.words():
        if isinstance(word, Word):
            if word == "'s" or (before, word) == ("can", "not"):
                found[-1].add(word.part)
            else:
                found.append({word.part})
        before = word.lower()
    return found


def render(sentence: Sentence) -> Tree:
    """Returns the tree of a sentence, `(S (NP ...) (VP ...) (. .))`."""
    if sentence.is_question:
        auxiliary, *rest = _verb_phrase(sentence.main, with_auxiliary=True).children
        subject = _subject(sentence.main)
        return _capitalised(Tree("SQ", (auxiliary, subject, *rest, _QUESTION_MARK)))
    opening: tuple[Tree, ...] = ()
    subject, acts = _clause(sentence.main)
    if sentence.adverb:
        tag, label = ("RB", "ADVP") if sentence.adverb is words.NOW else ("NN", "NP")
        adverb = Tree(label, (Tree(tag, word=sentence.adverb.english),))
        opening = (_tagged(adverb, sentence, "adverb"),)
    if subordinate := sentence.subordinate:
        conjunction = Tree("IN", word=subordinate.conjunction.english)
        clause = Tree("S", tuple(_clause(subordinate.clause)))
        dependent = Tree("SBAR", (_tagged(conjunction, sentence, "if"), clause))
        if subordinate.conjunction is words.IF:
            opening = (dependent, _COMMA)
        else:
            acts = Tree("VP", (*acts.children, dependent))
    return _capitalised(Tree("S", (*opening, subject, acts, _STOP)))


def _capitalised(tree: Tree) -> Tree:
    """Capitalizes the first word."""
    if tree.word is not None:
        assert isinstance(tree.word, Word)
        word = Word(tree.word.capitalize(), tree.word.part)
        return Tree(tree.label, word=word)
    first, *rest = tree.children
    return Tree(tree.label, (_capitalised(first), *rest))


def _tagged(tree: Tree, whole: object, part: str) -> Tree:
    """Returns the tree with its words `grammar.tagged`."""
    if tree.word is not None:
        (word,) = tagged([tree.word], whole, part)
        return Tree(tree.label, word=word)
    children = (_tagged(child, whole, part) for child in tree.children)
    return Tree(tree.label, tuple(children))


def _clause(clause: Clause) -> list[Tree]:
    """Subject and verb phrase; a trace has no words."""
    if isinstance(clause.subject, Trace):
        return [_verb_phrase(clause)]
    return [_subject(clause), _verb_phrase(clause)]


def _subject(clause: Clause) -> Tree:
    return _tagged(_phrase(clause.subject), clause, "subject")


def _verb_phrase(clause: Clause, with_auxiliary: bool = False) -> Tree:
    """An auxiliary, "not" and a verb phrase within it; or just the verb.

    "Do" is the auxiliary of a verb that has no other, where one is needed: before
    "not", and to stand before the subject of a question.
    """
    return _tagged(_untagged_verb_phrase(clause, with_auxiliary), clause, "verb")


def _untagged_verb_phrase(clause: Clause, with_auxiliary: bool) -> Tree:
    verb, arguments = clause.verb, _arguments(clause)
    not_ = (_tagged(_NOT, clause, "not"),) if clause.negated else ()
    if clause.tense in (Tense.FUTURE, Tense.CAN):
        auxiliary = Tree("MD", word="will" if clause.tense is Tense.FUTURE else "can")
        auxiliary = _tagged(auxiliary, clause, "tense")
    elif verb is words.BE:
        be = ("are", "is", "were") if clause.subject.plural else ("am", "is", "was")
        return Tree("VP", (_finite(clause, be), *not_, *arguments))
    elif clause.negated or with_auxiliary:
        auxiliary = _tagged(_finite(clause, ("do", "does", "did")), clause, "do")
    else:
        return Tree("VP", (_finite(clause, verb.english), *arguments))
    inner = Tree("VP", (Tree("VB", word=verb.english[0]), *arguments))
    return Tree("VP", (auxiliary, *not_, inner))


def _finite(clause: Clause, forms: tuple[str, ...]) -> Tree:
    """Returns the verb form that agrees with the subject."""
    if clause.tense is Tense.PAST:
        return Tree("VBD", word=forms[2])
    if clause.person == 1:
        return Tree("VBZ", word=forms[1])
    return Tree("VBP", word=forms[0])


def _arguments(clause: Clause) -> list[Tree]:
    """Returns what follows the verb, in order."""
    verb, trees = clause.verb, []
    if verb.english_particle:
        trees.append(Tree("PRT", (Tree("RP", word=verb.english_particle),)))
    if clause.recipient:
        phrase = _phrase(clause.recipient, is_object=True)
        trees.append(_tagged(phrase, clause, "recipient"))
    if clause.object and not isinstance(clause.object, Trace):
        phrase = _tagged(_phrase(clause.object, is_object=True), clause, "object")
        if preposition := verb.english_preposition:
            tag = "TO" if preposition == "to" else "IN"
            phrase = Tree("PP", (Tree(tag, word=preposition), phrase))
            if verb.german_preposition:
                phrase = _tagged(phrase, clause, "preposition")
        trees.append(phrase)
    if clause.predicate:
        adjective = Tree("JJ", word=clause.predicate.english)
        trees.append(_tagged(Tree("ADJP", (adjective,)), clause, "predicate"))
    if clause.place:
        phrase = _noun_phrase(clause.place.phrase)
        place = _place(clause.place.preposition, phrase)
        trees.append(_tagged(place, clause, "place"))
    return trees


def _place(preposition: Uninflected, phrase: Tree) -> Tree:
    if preposition is words.NEXT_TO:
        to = Tree("PP", (Tree("TO", word="to"), phrase))
        return Tree("ADVP", (Tree("JJ", word="next"), to))
    if preposition is words.IN_FRONT_OF:
        front = Tree("NP", (Tree("NN", word="front"),))
        of = Tree("PP", (Tree("IN", word="of"), phrase))
        return Tree("PP", (Tree("IN", word="in"), Tree("NP", (front, of))))
    return Tree("PP", (Tree("IN", word=preposition.english), phrase))


def _phrase(phrase: Subject, is_object: bool = False) -> Tree:
    if isinstance(phrase, Pronoun):
        return Tree("NP", (Tree("PRP", word=phrase.english[is_object]),))
    if isinstance(phrase, Coordination):
        first, second = _noun_phrase(phrase.first), _noun_phrase(phrase.second)
        return Tree("NP", (first, Tree("CC", word="and"), second))
    assert isinstance(phrase, NounPhrase)  # a trace has no words
    return _noun_phrase(phrase)


def _noun_phrase(phrase: NounPhrase) -> Tree:
    """Determiner or owner, adjectives, the one or two words of the noun, relative."""
    *modifiers, head = phrase.noun.english[phrase.plural].split()
    nominal = [
        *(
            _tagged(Tree("JJ", word=adjective.english), phrase, adjective.english)
            for adjective in phrase.adjectives
        ),
        *(Tree("NN", word=modifier) for modifier in modifiers),
        Tree("NNS" if phrase.plural else "NN", word=head),
    ]
    nominal = [_tagged(tree, phrase, "noun") for tree in nominal]
    determiner = _determiner(phrase, nominal[0])
    determiner = [_tagged(tree, phrase, "determiner") for tree in determiner]
    tree = Tree("NP", (*determiner, *nominal))
    if phrase.relative is None:
        return tree
    return Tree("NP", (tree, _relative(phrase, phrase.relative)))


def _determiner(phrase: NounPhrase, following: Tree) -> list[Tree]:
    """What opens the phrase: none, a word, or the owner with its 's."""
    determiner = phrase.determiner
    if phrase.owner:
        owner = _noun_phrase(phrase.owner)
        return [Tree("NP", (*owner.children, Tree("POS", word="'s")))]
    if determiner is words.BARE:
        return []
    assert determiner is not None
    word = determiner.english
    if determiner is words.THIS and phrase.plural:
        word = "these"
    if determiner is words.A and following.words()[0][0] in "aeiou":
        word = "an"
    tag = {words.MY: "PRP$", words.TWO: "CD"}.get(determiner, "DT")
    return [Tree(tag, word=word)]


def _relative(phrase: NounPhrase, relative: Clause) -> Tree:
    """The dog THAT SLEEPS, the man WHO SLEEPS, the man WHOM THE DOG SEES."""
    pronoun = Tree("WDT", word="that")
    if phrase.noun.kind in words.PERSON:
        about_object = isinstance(relative.object, Trace)
        pronoun = Tree("WP", word="whom" if about_object else "who")
    pronoun = _tagged(pronoun, relative, "relative")
    clause = Tree("S", tuple(_clause(relative)))
    return Tree("SBAR", (Tree("WHNP", (pronoun,)), clause))
