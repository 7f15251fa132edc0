"""Numbers with their nouns."""

import pytest

from t2t_keras.errors import quantity


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((0, "lines"), "0 lines"),
        ((1, "lines"), "1 line"),
        ((1014, "lines"), "1,014 lines"),
        ((1, "batches", "batch"), "1 batch"),
        ((2, "batches", "batch"), "2 batches"),
    ],
)
def test_a_noun_agrees_with_its_number(arguments, text):
    assert quantity(*arguments) == text
