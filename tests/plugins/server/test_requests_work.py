"""The work of a request's rows."""

import pytest

from t2t_keras.plugins.server.requests import Limits, PredictRequest, row_works

LIMITS = Limits()


def work_of(**inputs):
    body = {"signature_name": "translate", "inputs": {"texts": ["a dog"]} | inputs}
    (work,) = row_works(PredictRequest.parse(body), LIMITS, 4)
    return work


@pytest.mark.parametrize(
    ("signature", "searches"), [("score", 0.25), ("explain", 1), ("alternatives", 8)]
)
def test_alternatives_are_as_much_work_as_their_searches(signature, searches):
    row = {"texts": "a" * 36}
    row |= {"targets": ""} if signature == "score" else {"prefixes": ""}
    body = {"signature_name": signature, "instances": [row]}
    works = row_works(PredictRequest.parse(body), LIMITS, 4)
    assert works == [searches * 4 * (36 + 64)]


@pytest.mark.parametrize(
    ("phrases", "size"),
    [
        (["dog"], 3 + 2),
        (["dog", ""], 3 + 2),
        (["日"], 3 + 2),  # bytes of UTF-8
        ([chr(0x4E00 + i) for i in range(450)], 450 * (3 + 2)),
    ],
)
def test_the_bytes_and_the_number_of_phrases_count(phrases, size):
    plain = 4 * (5 + 64)
    assert work_of() == plain
    assert work_of(forbidden=[phrases]) == plain + 4 * 4 * size
    pairs = [[phrase, phrase] for phrase in phrases]
    assert work_of(glossary=[pairs], beam_size=1) == 5 + 64 + 4 * 2 * size
