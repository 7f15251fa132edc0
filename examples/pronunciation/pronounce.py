r"""Spanish spelling to sound, with its own text processor, constraint and metrics.

t2t datagen --usr_dir examples/pronunciation --problem pronounce_es --data_dir data
t2t train   --usr_dir examples/pronunciation --problem pronounce_es --data_dir data \\
            --hparams_set tiny --output_dir runs/pronounce --train_steps 400
echo cachorro | t2t translate runs/pronounce       # /katʃoro/
"""

import itertools
import re

import numpy as np

from t2t_keras import Problem, register_problem
from t2t_keras.metrics import CorpusMetric, Metrics
from t2t_keras.problem import TextProcessor

SOUNDS = {"ch": "tʃ", "ll": "ʎ", "rr": "r", "qu": "k", "ñ": "ɲ", "j": "x", "z": "θ"}
SOUNDS |= {"ce": "θ e", "ci": "θ i", "ge": "x e", "gi": "x i", "v": "b", "h": ""}
SOUNDS |= {"c": "k", "g": "ɡ"} | {letter: letter for letter in "abdefiklmnoprstu"}
PHONEMES = sorted(set(" ".join(SOUNDS.values()).split()))
PHONEMES = tuple(sorted(PHONEMES, key=len, reverse=True))  # "tʃ" is not "t" and more


def pairs(remainder):
    """Yields all words of three syllables with this checksum, letter by letter."""
    onsets = ("c", "ch", "g", "h", "j", "ll", "m", "ñ", "r", "s", "t", "v", "z")
    syllables = [onset + vowel for onset in onsets for vowel in "aeio"]
    for index, triple in enumerate(itertools.product(syllables, repeat=3)):
        word = "".join(triple)
        if index % 101 in remainder:
            letters = re.findall("|".join(SOUNDS), word)
            yield " ".join(word), " ".join(filter(None, map(SOUNDS.get, letters)))


class Pronunciation(TextProcessor):
    """The user gives a word, the model reads letters; outputs are /sounds/."""

    def preprocess(self, text, raw=False):
        return " ".join(text.replace(" ", "").lower())

    def preprocess_target(self, source, output):
        return " ".join(re.findall("|".join(PHONEMES), output))

    def postprocess(self, source, target):
        return target and f"/{target.replace(' ', '')}/", False

    def preprocess_graph(self, texts, raw):  # the same, of string tensors
        import tensorflow as tf

        letters = tf.strings.lower(tf.strings.regex_replace(texts, " ", ""), "utf-8")
        return tf.strings.strip(tf.strings.regex_replace(letters, "(.)", r"\1 "))

    def postprocess_graph(self, sources, targets):
        import tensorflow as tf

        sounds = tf.strings.regex_replace(targets, " ", "")
        return tf.where(sounds == "", "", tf.strings.join(["/", sounds, "/"]))


def phonemes_only(problem, tokenizer):
    """Restricts outputs to phonemes."""
    from t2t_keras.decoding.constraint import BannedTokens
    from t2t_keras.text.vocabulary import EOS

    allowed = {EOS, *(tokenizer.encode(symbol)[0] for symbol in problem.symbols)}
    banned = set(range(tokenizer.vocab_size)) - allowed
    constraint = BannedTokens(banned, tokenizer.vocab_size)
    return lambda texts, max_length: (constraint, max_length)


class PhonemeErrorRate(Metrics):
    """Phoneme error rate: edits per 100 phonemes of the reference."""

    selection_metric = "phoneme_error_rate"
    higher_is_better = False

    def score(self, sources, outputs, references):
        rate = EditRate()
        statistics = rate.statistics(sources, outputs, references)
        return {rate.name: rate.score(statistics.sum(0))}

    def corpus_metrics(self):  # what `t2t compare` tests
        return (EditRate(),)


class EditRate(CorpusMetric):
    """The error rate, from the edits and the phonemes of each sentence."""

    name = "phoneme_error_rate"
    higher_is_better = False

    def statistics(self, sources, outputs, references):
        split = re.compile("|".join(PHONEMES)).findall
        rows = []
        for output, reference in zip(outputs, references, strict=True):
            phonemes = split(reference)
            rows.append((distance(split(output), phonemes), len(phonemes)))
        return np.array(rows)

    def score(self, statistics):
        edits, phonemes = map(float, statistics)
        return 100 * edits / phonemes


def distance(a, b):
    """Returns the Levenshtein distance of two sequences."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        previous = row
        row = [i]
        for j, y in enumerate(b, 1):
            substitution = previous[j - 1] + (x != y)
            row.append(min(substitution, previous[j] + 1, row[j - 1] + 1))
    return row[-1]


@register_problem
def pronounce_es():
    """Words of three syllables, Castilian pronunciation."""
    return Problem(
        summary="Spanish spelling to phonemes, generated words",
        sources={
            "train": lambda: pairs(range(3, 10)),
            "dev": lambda: pairs([1]),
            "test": lambda: pairs([2]),
        },
        vocab_size=320,
        shared_vocab=False,
        text_processor=Pronunciation(symbols=PHONEMES),
        constraint=phonemes_only,
        metrics=PhonemeErrorRate(),
    )
