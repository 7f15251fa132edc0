"""Draws sentences of the toy grammar: an English tree and its German translation.

Each phrase is drawn once and rendered in both languages at the same time. German has
its own word order: the finite verb is second in a main clause, first in a question and
last in a subordinate clause; the rest of the verb (separable prefix, participle,
infinitive) closes the clause.
"""

import random
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from . import lexicon as words
from .lexicon import CASES, PERSON, PLURAL, Determiners, Verb

_TENSES = ("present", "past", "will", "can")
_MODALS = {"will": ("werde", "wird", "werden"), "can": ("kann", "kann", "können")}
_CONJUNCTIONS = {"that": "dass", "because": "weil"}
_TAGS = ("VBP", "VBZ", "VBD")
_NO_WORDS = dict.fromkeys(CASES, "")
_PERFECT = {"": ("habe", "hat", "haben"), "ist": ("bin", "ist", "sind")}


class Phrase(NamedTuple):
    """A subject or an object; the gap of a relative clause has no words.

    Attributes:
        english: its tree.
        german: its words by case.
        person: the form of a verb that agrees: 0 for I, 1 for he, 2 for they.
        noun_class: the letter of its noun's class, see `lexicon`; "" for a pronoun.
        column: gender or plural, the column in the tables of endings.
    """

    english: str
    german: Mapping[str, str]
    person: int
    noun_class: str = ""
    column: int = PLURAL


class Clause(NamedTuple):
    """A clause in parts; `verb` and `complement` are English trees, others German."""

    subject: Phrase
    verb: str
    complement: str
    finite: str
    middle: str
    closing: str

    def tree(self) -> str:
        """Returns subject and verb phrase in English."""
        return f"{self.subject.english} (VP {self.verb} {self.complement})"

    def verb_second(self) -> str:
        """Der Mann ruft den Jungen an."""
        subject = self.subject.german["nominative"]
        return f"{subject} {self.finite} {self.middle} {self.closing}"

    def verb_first(self) -> str:
        """Ruft der Mann den Jungen an? Wenn er schläft, ruft der Mann den Jungen an."""
        subject = self.subject.german["nominative"]
        return f"{self.finite} {subject} {self.middle} {self.closing}"

    def verb_last(self) -> str:
        """Dass der Mann den Jungen anruft, angerufen hat."""
        verb = f"{self.closing} {self.finite}".replace("- ", "")
        return f"{self.subject.german['nominative']} {self.middle} {verb}"


def sentences(seed: int) -> Iterator[tuple[str, str]]:
    """Yields random English trees with their translations, without end.

    Equal seeds give equal sentences.
    """
    sampler = _Sampler(seed)
    while True:
        tree, german = sampler.sentence()
        yield _english(tree), _german(german)


def _english(tree: str) -> str:
    """Capitalizes the first word; "a" becomes "an" before a vowel."""
    tree = re.sub(r" +(?=[ )])", "", tree)  # where a part is empty
    tree = re.sub(r"\(DT a\)(?= \(\w+ [aeiou])", "(DT an)", tree)
    return re.sub(r" \w(?=[^ ()]*\))", lambda match: match[0].upper(), tree, count=1)


def _german(text: str) -> str:
    """Joins words and marks; of adjacent commas one stays, before a stop none."""
    text = re.sub(r"(?: ,)* (?=[.?])", "", " ".join(text.replace("-", "").split()))
    text = re.sub(r"(?: ,)+", ",", text)
    return text[0].upper() + text[1:]


class _Sampler(random.Random):
    """Draws sentences and their parts.

    No subject or object of a negated clause is indefinite: German would have "kein".
    """

    def sentence(self) -> tuple[str, str]:
        """Draws the English tree and the German words."""
        sentence_types = ("plain", "question", "relative", "if", "that", "because")
        (sentence_type,) = self.choices(sentence_types, (20, 13, 25, 14, 14, 14))
        if sentence_type == "question":
            main = self.clause(question=True)
            english = f"{main.verb} {main.subject.english} {main.complement}"
            return f"(SQ {english} (. ?))", f"{main.verb_first()} ?"
        if sentence_type in ("plain", "relative"):
            main = self.clause(relative=sentence_type == "relative")
            return f"(S {main.tree()} (. .))", f"{main.verb_second()} ."
        clause = self.clause()
        subordinate = f"(SBAR (IN {sentence_type}) (S {clause.tree()}))"
        if sentence_type == "if":
            main = self.clause()
            german = f"wenn {clause.verb_last()} , {main.verb_first()} ."
            return f"(S {subordinate} (, ,) {main.tree()} (. .))", german
        if sentence_type == "that":
            report = Phrase(subordinate, _NO_WORDS, 1)
            main = self.clause(self.choice((words.SAY, words.KNOW)), object_=report)
        else:
            main = self.clause()
            main = main._replace(complement=f"{main.complement} {subordinate}")
        conjunction = _CONJUNCTIONS[sentence_type]
        german = f"{main.verb_second()} , {conjunction} {clause.verb_last()} ."
        return f"(S {main.tree()} (. .))", german

    def clause(
        self,
        verb: Verb | None = None,
        question: bool = False,
        relative: bool = False,
        subject: Phrase | None = None,
        object_: Phrase | None = None,
    ) -> Clause:
        """Draws a clause.

        Args:
            verb: its verb; None: it is drawn, as are subject and object.
            question: whether it is a question.
            relative: whether subject or object has a relative clause.
            subject: its subject.
            object_: its object.
        """
        is_plain = not (verb or relative)
        tense = self.choice(_TENSES)
        verb = verb or self.choice(words.VERBS)
        negated = is_plain and not question and self.random() < 0.25
        determiners = words.DEFINITE if negated else words.ANY
        if relative and verb.object and self.random() < 0.5:
            object_ = self.with_relative(verb.object)
        elif relative:
            subject = self.with_relative(verb.subject)
        subject = subject or self.argument(verb.subject, determiners)
        if verb.object and not object_:
            object_ = self.argument(verb.object, determiners, is_object=True)

        arguments = object_.english if object_ else ""
        if verb.follows.endswith("-"):
            arguments = f"(PRT (RP {verb.follows[:-1]})) {arguments}"
        elif verb.follows and arguments:
            tag = "TO" if verb.follows == "to" else "IN"
            arguments = f"(PP ({tag} {verb.follows}) {arguments})"
        complement = arguments
        forms = verb.english.split("/")
        if tense in _MODALS or negated or question:
            not_ = "(RB not)" if negated else ""
            complement = f"{not_} (VP (VB {forms[0]}) {complement})"
            forms = ["do", "does", "did"]
        finite = f"(MD {tense})"
        if tense not in _MODALS:
            column = 2 if tense == "past" else int(subject.person == 1)
            finite = f"({_TAGS[column]} {forms[column]})"

        german = object_.german[verb.case] if object_ else ""
        nicht = "nicht" if negated else ""
        middle = f"{german} {nicht}"
        closing = verb.german_follows
        if closing and not closing.endswith("-"):  # a preposition
            middle = f"{nicht} {closing} {german}"
            closing = ""
        *present, participle = verb.german.split("/")
        if tense in _MODALS:
            closing = f"{closing}{present[2]}"
            present = [*_MODALS[tense]]
        elif tense == "past":
            auxiliary, _, closing = participle.rpartition(" ")
            present = [*_PERFECT[auxiliary]]
        german_finite = present[subject.person]
        return Clause(subject, finite, complement, german_finite, middle, closing)

    def with_relative(self, noun_classes: str) -> Phrase:
        """The dog that sleeps; the man who sleeps; the man whom the dog sees."""
        head = self.noun_phrase(noun_classes, ((words.THE, words.A), (words.THE,)))
        gap = head._replace(english="", german=_NO_WORDS)
        by_subject = [verb for verb in words.VERBS if head.noun_class in verb.subject]
        if by_subject and self.random() < 0.5:
            verb = self.choice(by_subject)
            clause = self.clause(verb, subject=gap)
            case = "nominative"
            pronoun = "(WP who)"
        else:
            # "Whom he calls", but not "whom he waits for".
            by_object = [
                verb
                for verb in words.VERBS
                if head.noun_class in verb.object and not verb.follows
            ]
            verb = self.choice(by_object)
            clause = self.clause(verb, object_=gap)
            case = verb.case
            pronoun = "(WP whom)"
        pronoun = pronoun if head.noun_class in PERSON else "(WDT that)"
        german = f", d{words.RELATIVE[case][head.column]} {clause.verb_last()} ,"
        return head._replace(
            english=f"(NP {head.english} (SBAR (WHNP {pronoun}) (S {clause.tree()})))",
            german={case: f"{noun} {german}" for case, noun in head.german.items()},
        )

    def argument(
        self, noun_classes: str, determiners: Determiners, is_object: bool = False
    ) -> Phrase:
        """Draws a noun phrase, or for persons sometimes a pronoun."""
        if "a" in noun_classes and self.random() < 0.27:
            person, english, forms = self.choice(words.PRONOUNS[is_object:])  # no "me"
            english = f"(NP (PRP {english.split('/')[is_object]}))"
            german = dict(zip(CASES, forms.split("/"), strict=False))
            return Phrase(english, german, int(person))
        return self.noun_phrase(noun_classes, determiners)

    def noun_phrase(self, noun_classes: str, determiners: Determiners) -> Phrase:
        """Draws an article or owner, adjectives and a noun.

        Args:
            noun_classes: the letters of the classes of nouns to choose from.
            determiners: the determiners to choose from.
        """
        noun = self.choice(
            [noun for noun in words.NOUNS if noun.noun_class in noun_classes]
        )
        plural = bool(determiners[1]) and self.random() < 0.35
        determiner = self.choice(determiners[plural])
        article, stem, endings, adjective_endings = determiner
        column = PLURAL if plural else words.ARTICLES.index(noun.article)
        adjectives = [
            (english, german)
            for classes, english, german in words.ADJECTIVES
            if noun.noun_class in classes and self.random() < 0.08
        ]
        genitive = ""
        if determiners is words.ANY and determiner is words.THE and self.random() < 0.2:
            owner = self.noun_phrase(PERSON, ((words.THE, words.MY), ()))
            article = f"{owner.english[:-1]} (POS 's))"
            genitive = owner.german["genitive"]
        *modifiers, head = noun.english.split("/")[plural].split()
        leaves = [f"(JJ {english})" for english, _ in adjectives]
        leaves += [f"(NN {word})" for word in modifiers]
        leaves.append(f"(NNS {head})" if plural else f"(NN {head})")
        forms = {}
        for case in CASES:
            ending = adjective_endings[case][column]
            inflected_stem = stem + endings[case][column]
            inflected = [text.removesuffix("e") + ending for _, text in adjectives]
            declined = noun.declined(case, plural)
            forms[case] = " ".join([inflected_stem, *inflected, declined, genitive])
        english = f"(NP {article} {' '.join(leaves)})"
        return Phrase(english, forms, 2 if plural else 1, noun.noun_class, column)
