"""Training sources must have the form that the text processor gives to inputs."""

from helpers.small_corpus import PROBLEM, TRAIN, Given

from t2t_keras.data.datagen import generate, source_form_warning
from t2t_keras.problem import TextProcessor


class LowerCase(TextProcessor):
    def preprocess(self, text, raw=False):
        return text.strip().lower()


def of(pairs):
    return PROBLEM.replace(text_processor=LowerCase(), sources={"train": Given(pairs)})


def test_a_source_that_preprocessing_changes_is_said(tmp_path, capsys):
    pairs = [("a dog", "ein Hund"), ("A cat", "eine Katze"), *TRAIN]
    generate(of(pairs), tmp_path, workers=1)
    (warning,) = [x for x in capsys.readouterr().err.splitlines() if "warning" in x]
    assert "of LowerCase turns the training source 'A cat' into 'a cat', so" in warning


def test_preprocessed_sources_are_as_they_should_be():
    lowered = [(source.lower(), target) for source, target in TRAIN]
    assert source_form_warning(of(lowered)) is None
    assert source_form_warning(PROBLEM.replace(sources={"train": Given(TRAIN)})) is None
