"""What an inspection says of texts in other languages than they should be."""

import pytest

from t2t_keras.plugins.corpus.findings import language_finding


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ({"en": 0.9, "de": 0.1}, {"de": 1.0}, None),
        ({"en": 1.0}, {"fr": 1.0}, "train: the target is in 'fr', but the languages"),
        (
            {"nl": 0.8},
            None,
            "train: the source is in 'nl', but the languages are en-de",
        ),
        ({"nl": 0.7, "en": 0.3}, {"fr": 0.5, "de": 0.5}, None),
        (None, None, None),  # the languages are not detected
    ],
)
def test_a_majority_of_another_language_is_named(source, target, message):
    finding = language_finding("train", (source, target), ("en", "de"))
    assert (finding is None) == (message is None)
    if message:
        assert str(finding).startswith(message)
