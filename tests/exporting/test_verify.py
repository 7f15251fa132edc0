"""A text processor whose graph differs from Python: an export is refused."""

import pytest
import tensorflow as tf
from helpers.errors import refused

from t2t_keras.exporting.verify import verify_text_processor
from t2t_keras.problem import TextProcessor

SOURCES = ["A dog.", "a house"]
TARGETS = ["ein hund.", ""]


class Lower(TextProcessor):
    def preprocess(self, text, raw=False):
        return text.lower()

    def preprocess_graph(self, texts, raw):
        return tf.strings.lower(texts)


class Capitalized(Lower):
    def postprocess(self, source, target):
        return target.capitalize(), False


class InBoth(Capitalized):
    def postprocess_graph(self, sources, targets):
        initial = tf.strings.upper(tf.strings.substr(targets, 0, 1))
        return initial + tf.strings.substr(targets, 1, 99)


class OnlyInPython(TextProcessor):
    def preprocess(self, text, raw=False):
        return text.lower()


class Repairing(Lower):
    def postprocess(self, source, target):
        return "repaired", True


class Numbers(TextProcessor):
    """Its users write letters, so `preprocess` refuses texts of the model."""

    def preprocess(self, text, raw=False):
        return str(["A", "B"].index(text))


@pytest.mark.parametrize("cls", [TextProcessor, Lower, InBoth, Repairing, Numbers])
def test_equal_results_are_accepted(cls):
    verify_text_processor(cls(), SOURCES, TARGETS)


@pytest.mark.parametrize(
    "cls, message",
    [
        (OnlyInPython, "preprocess_graph makes 'A dog.' of 'A dog.', and preprocess '"),
        (Capitalized, "postprocess_graph makes 'ein hund.' of .*postprocess 'Ein hund"),
    ],
)
def test_other_results_are_refused(cls, message):
    refused(
        f"refused, because {cls.__name__}.{message}",
        *(verify_text_processor, cls(), SOURCES, TARGETS),
    )
