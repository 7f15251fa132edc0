"""The toy grammar: right in three languages, fair in its splits, and not too easy."""

import collections
import functools
import hashlib
import itertools
import os
import pickle
import re
import subprocess
import sys

import pytest
import sacrebleu
from toy_sentences import ENGLISH, SENTENCES, TREES

from t2t_keras import registry
from t2t_keras.problems import toy
from t2t_keras.problems.parsing.linearise import linearise
from t2t_keras.problems.parsing.tree import parse_tree
from t2t_keras.problems.toy import english, french, german
from t2t_keras.problems.toy import lexicon as words
from t2t_keras.problems.toy.grammar import (
    Coordination,
    NounPhrase,
    Tense,
    Trace,
    clauses,
    combinations,
)
from t2t_keras.problems.toy.sampler import derivations


@pytest.mark.parametrize(
    ("derivation", "source", "in_german", "in_french"), SENTENCES, ids=ENGLISH
)
def test_sentence_is_rendered_as_written_by_hand(
    derivation, source, in_german, in_french
):
    tree = english.render(derivation)
    assert english.text(tree) == source
    assert german.render(derivation) == in_german
    assert french.render(derivation) == in_french
    if source in TREES:
        assert tree.format() == TREES[source]


def test_every_tree_that_is_written_by_hand_belongs_to_a_sentence():
    assert TREES.keys() <= set(ENGLISH)


@functools.cache
def texts(split, target):
    return list(toy.pairs(split, target))


@pytest.mark.slow
def test_splits_have_their_sizes_and_no_sentence_in_common():
    sources = {split: {s for s, _ in texts(split, "german")} for split in toy.SIZES}
    assert {split: len(found) for split, found in sources.items()} == {
        "train": 10_000,
        "dev": 200,
        "test": 400,
    }
    for one, other in itertools.combinations(sources.values(), 2):
        assert not one & other


def test_grammar_has_thousands_of_sentences_and_one_translation_of_each():
    translations = {}
    for derivation in itertools.islice(derivations(seed=1), 24_000):
        words = " ".join(english.render(derivation).words())
        first = translations.setdefault(words, derivation)
        if first is not derivation:
            for language in (english, german, french):
                assert language.render(first) == language.render(derivation)
    assert len(translations) > 20_000


@pytest.mark.parametrize("target", ["german", "french", "tree"])
def test_every_word_of_the_other_splits_is_frequent_in_training(target):
    counts = collections.Counter()
    written = set()
    for side, text in sides(texts("train", target)):
        counts.update((side, token.lower()) for token in tokens(text))
        written.update((side, token) for token in tokens(text))
    for side, text in sides(texts("dev", target) + texts("test", target)):
        for token in tokens(text):
            assert counts[side, token.lower()] >= 10, token
            assert (side, token) in written, token  # capitals, too


def sides(pairs):
    return ((side, text) for pair in pairs for side, text in enumerate(pair))


def test_every_construction_is_frequent_in_training():
    count = collections.Counter()
    for sentence in toy.corpus()["train"]:
        found = {("question", sentence.is_question), sentence.adverb}
        if sentence.subordinate:
            found |= {sentence.subordinate.conjunction, sentence.main.verb}
        else:
            found.add("one clause")
        for clause in clauses(sentence):
            phrases = (clause.subject, clause.object, clause.recipient)
            found |= {
                clause.verb,
                clause.tense,
                ("negated", clause.negated, clause.negates_object),
                ("predicate", clause.predicate is not None),
                clause.place and clause.place.preposition,
                *zip(
                    ("subject", "object", "recipient"),
                    map(type, phrases),
                    strict=True,
                ),
                *(p for p in phrases if isinstance(p, words.Pronoun)),
            }
            for phrase in phrases:
                if isinstance(phrase, NounPhrase):
                    found |= {phrase.noun, phrase.determiner, *phrase.adjectives}
                    found |= {"owner"} if phrase.owner else set()
                    found |= {"relative"} if phrase.relative else set()
        count.update(found)
    expected = {
        *(("question", True), "one clause", *Tense, "owner", "relative"),
        *(words.THAT, words.BECAUSE, words.IF),
        *(words.TODAY, words.NOW, words.TOMORROW, words.YESTERDAY, words.BE),
        *(*words.VERBS, *words.REPORTS, *words.PREPOSITIONS, *words.PRONOUNS),
        *(*words.NOUNS, *words.ADJECTIVES, *words.DETERMINERS),
        *(("negated", True, False), ("negated", True, True), ("predicate", True)),
        *(("subject", Coordination), ("subject", Trace), ("object", Trace)),
        *(("object", words.Pronoun), ("recipient", words.Pronoun)),
    }
    assert expected <= count.keys()
    rare = {thing: n for thing, n in count.items() if n < 60}
    assert not rare


def test_test_combinations_are_never_seen_in_training_or_development():
    found = {
        split: [set(combinations(sentence)) for sentence in sentences]
        for split, sentences in toy.corpus().items()
    }
    seen = set().union(*found["train"])
    assert all(combined - seen for combined in found["dev"])
    seen = seen.union(*found["dev"])
    assert all(combined - seen for combined in found["test"])

    # Not because the grammar has none of them: the parts of each meet in training.
    pairs = {pair for combined in seen for pair in itertools.combinations(combined, 2)}
    held_out = set().union(*found["test"]) - seen
    assert len(held_out) > 50
    known = [set(itertools.combinations(c, 2)) <= pairs for c in held_out]
    assert sum(known) > 0.8 * len(known)


@pytest.mark.parametrize("target", ["german", "french"])
def test_word_by_word_dictionary_scores_under_40_bleu(target):
    dictionary = best_dictionary(texts("train", target)[:1500])
    hypotheses, references = [], []
    for source, reference in texts("test", target):
        guess = " ".join(dictionary[token] for token in tokens(source.lower()))
        hypotheses.append(re.sub(r" (?=[.,])|(?<=') ", "", guess))
        references.append(reference)
    bleu = sacrebleu.corpus_bleu(hypotheses, [references], lowercase=True).score
    assert 5 < bleu < 40  # a dictionary of nonsense would show nothing


def tokens(text):
    return re.findall(r"\w+-\w+|\w+'?|[^\w\s]", text)


def best_dictionary(pairs, iterations=5):
    """Returns each source word's likeliest target word by IBM model 1."""
    pairs = [
        (tokens(source.lower()), tokens(target.lower())) for source, target in pairs
    ]
    probability = collections.defaultdict(lambda: 1.0)
    for _ in range(iterations):
        counts = collections.defaultdict(float)
        totals = collections.defaultdict(float)
        for source, target in pairs:
            for f in target:
                evidence = [probability[e, f] for e in source]
                scale = 1 / sum(evidence)
                for e, value in zip(source, evidence, strict=True):
                    counts[e, f] += value * scale
                    totals[e] += value * scale
        probability = {(e, f): n / totals[e] for (e, f), n in counts.items()}
    best = {}
    for (e, f), value in probability.items():
        if value > best.get(e, ("", 0.0))[1]:
            best[e] = (f, value)
    return {e: f for e, (f, _) in best.items()}


def test_leaves_of_the_tree_are_the_english_sentence():
    problem = registry.problem("parsing_toy")
    sentences = toy.corpus()["test"]
    for derivation, (source, target), (text, _) in zip(
        sentences, texts("test", "tree"), texts("test", "german"), strict=True
    ):
        tree = english.render(derivation)
        assert parse_tree(tree.format()) == tree
        assert source == " ".join(tree.words())
        assert text == english.text(tree)
        assert target.split() == linearise(tree)
        assert set(target.split()) <= set(problem.symbols)
        assert problem.text_form.output_text(source, target) == (
            f"(TOP {tree.format()})",
            False,
        )


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("translate_ende_toy", "german"),
        ("translate_enfr_toy", "french"),
        ("parsing_toy", "tree"),
    ],
)
def test_problem_is_registered_and_its_sources_travel(name, target):
    problem = registry.problem(name)
    source = pickle.loads(pickle.dumps(problem.source("test")))
    assert list(source()) == list(source()) == texts("test", target)
    assert len(problem.summary) < 80


def test_corpus_does_not_depend_on_the_process():
    program = (
        "import hashlib; from t2t_keras.problems import toy; "
        "pairs = list(toy.pairs('test', 'french')); "
        "print(hashlib.sha256(repr(pairs).encode()).hexdigest())"
    )
    elsewhere = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONHASHSEED": "1"},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    here = hashlib.sha256(repr(texts("test", "french")).encode()).hexdigest()
    assert elsewhere == f"{here}\n"
