"""The toy grammar: right in both languages, fair in its splits, and not too easy."""

import collections
import functools
import hashlib
import itertools
import pickle
import re

import pytest
from helpers.command_line import python

from t2t_keras import registry
from t2t_keras.problems import toy
from t2t_keras.problems.toy import lexicon as words

# Checked by hand: separable verbs, verbs at the end, the four cases, the three genders.
TRANSLATIONS = {
    "My child's old dog arrives.": "Der alte Hund meines Kindes kommt an.",
    "She said that they arrived.": "Sie hat gesagt, dass sie angekommen sind.",
    "I say that my men arrived.": "Ich sage, dass meine Männer angekommen sind.",
    "Girls ate my boy's apples.": "Mädchen haben die Äpfel meines Jungen gegessen.",
    "If he calls two women, he does not sleep.": (
        "Wenn er zwei Frauen anruft, schläft er nicht."
    ),
    "These boys will help girls because she opened these books.": (
        "Diese Jungen werden Mädchen helfen, weil sie diese Bücher aufgemacht hat."
    ),
    "The girl whom he helped sleeps.": "Das Mädchen, dem er geholfen hat, schläft.",
    "He helped the women whom I helped.": (
        "Er hat den Frauen, denen ich geholfen habe, geholfen."
    ),
    "A queen who listens to her will arrive.": (
        "Eine Königin, die ihr zuhört, wird ankommen."
    ),
    "I cannot help this man.": "Ich kann diesem Mann nicht helfen.",
    "He cannot wait for them.": "Er kann nicht auf sie warten.",
    "Will a cat wait for two cats?": "Wird eine Katze auf zwei Katzen warten?",
    "Can I buy the train stations?": "Kann ich die Bahnhöfe kaufen?",
    "Do my girls eat an apple?": "Essen meine Mädchen einen Apfel?",
    "These tired men eat an apple.": "Diese müden Männer essen einen Apfel.",
}
TREES = {
    "My child's old dog arrives.": (
        "(S (NP (NP (PRP$ My) (NN child) (POS 's)) (JJ old) (NN dog)) "
        "(VP (VBZ arrives)) (. .))"
    ),
    "If he calls two women, he does not sleep.": (
        "(S (SBAR (IN If) (S (NP (PRP he)) (VP (VBZ calls) (NP (CD two) "
        "(NNS women))))) (, ,) (NP (PRP he)) (VP (VBZ does) (RB not) "
        "(VP (VB sleep))) (. .))"
    ),
    "A queen who listens to her will arrive.": (
        "(S (NP (NP (DT A) (NN queen)) (SBAR (WHNP (WP who)) (S (VP (VBZ listens) "
        "(PP (TO to) (NP (PRP her))))))) (VP (MD will) (VP (VB arrive))) (. .))"
    ),
    "Can I buy the train stations?": (
        "(SQ (MD Can) (NP (PRP I)) (VP (VB buy) (NP (DT the) (NN train) "
        "(NNS stations))) (. ?))"
    ),
}


@functools.cache
def texts(split, trees=False):
    if trees:
        from t2t_keras.problems.parsing.wsj import pairs

        return list(pairs(split))
    return list(toy.pairs(split))


def test_sentences_are_translated_and_parsed_as_by_hand():
    all_pairs = [pair for split in toy.SIZES for pair in toy.corpus()[split]]
    german = {toy.english_text(tree): text for tree, text in all_pairs}
    assert {text: german[text] for text in TRANSLATIONS} == TRANSLATIONS
    trees = {toy.english_text(tree): tree for tree, _ in all_pairs}
    assert {text: trees[text] for text in TREES} == TREES


def test_splits_have_their_sizes_and_no_sentence_in_common():
    sources = {}
    for split in toy.SIZES:
        sources[split] = {source for source, _ in texts(split)}
    sizes = {split: len(pairs) for split, pairs in sources.items()}
    assert sizes == {"train": 10_000, "dev": 200, "test": 400}
    for split_pairs, other_pairs in itertools.combinations(sources.values(), 2):
        assert not split_pairs & other_pairs


def test_every_word_is_frequent_in_training():
    text = " ".join(source for source, _ in texts("train")).lower()
    counts = collections.Counter(re.findall(r"\w+", text))
    forms = [noun.english for noun in words.NOUNS]
    forms += [verb.english for verb in (*words.VERBS, words.SAY, words.KNOW)]
    forms += [english for _, english, _ in words.ADJECTIVES]
    for word in re.findall(r"\w+", " ".join(forms)):
        assert counts[word] >= 30, word
    training_words = set(
        re.findall(r"\w+", " ".join(pair[1] for pair in texts("train")))
    )
    test_words = re.findall(r"\w+", " ".join(pair[1] for pair in texts("test")))
    assert sum(word not in training_words for word in test_words) <= 3


def test_tree_problem_has_the_words_and_symbols_of_the_trees():
    problem = registry.problem("parsing_toy")
    for (tree, _), (source, target) in zip(
        toy.corpus()["test"], texts("test", trees=True), strict=True
    ):
        assert set(target.split()) <= set(problem.symbols)
        assert problem.text_processor.postprocess(source, target) == (
            f"(TOP {tree})",
            False,
        )


@pytest.mark.parametrize(
    ("name", "trees"), [("translate_ende_toy", False), ("parsing_toy", True)]
)
def test_sources_travel_to_other_processes(name, trees):
    source = pickle.loads(pickle.dumps(registry.problem(name).source("test")))
    assert list(source()) == texts("test", trees)


def test_corpus_does_not_depend_on_the_process():
    program = (
        "import hashlib; from t2t_keras.problems import toy; "
        "pairs = list(toy.pairs('test')); "
        "print(hashlib.sha256(repr(pairs).encode()).hexdigest())"
    )
    printed = python(program, PYTHONHASHSEED="1")
    digest = hashlib.sha256(repr(texts("test")).encode()).hexdigest()
    assert printed == f"{digest}\n"
