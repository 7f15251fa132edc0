"""Clients that ask a server for translations while something happens to it."""

import contextlib
import http.client
import itertools
import json
import random
import socket
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from helpers.decoding_models import LINES

from t2t_keras import load
from t2t_keras.decoding.graph_engine import ModelTranslator

CLIENTS = 24
WORDS = [word for line in LINES for word in line.split()]
_GENERATOR = random.Random(0)
SENTENCES = [
    " ".join(_GENERATOR.choices(WORDS, k=_GENERATOR.randint(1, 12))) for _ in range(300)
]


def export_versions(translator: ModelTranslator, folder: Path) -> list[dict[str, str]]:
    """Writes two versions of a model for CTranslate2.

    Returns:
        For each one the translations of `SENTENCES` in this process.
    """
    from t2t_keras.plugins.engines.ctranslate2_export import export_ctranslate2

    folder.mkdir()
    expected = []
    for version, extra_length in enumerate((5, 3), 1):
        path = folder / str(version)
        # With random weights, outputs of a beam search depend on the batch.
        export_ctranslate2(translator, path, extra_length=extra_length, beam_size=1)
        translations = load(path).translate(SENTENCES)
        expected.append(dict(zip(SENTENCES, translations, strict=True)))
    differing = [x for x in SENTENCES if expected[0][x] != expected[1][x]]
    assert len(differing) > 200
    return expected


class Answer(NamedTuple):
    """The answer to a request.

    Attributes:
        sentence: what was to be translated.
        status: the HTTP status; 0: the connection was lost.
        output: the translation, or the error.
    """

    sentence: str
    status: int
    output: str


@contextlib.contextmanager
def asking(port: int, clients: int = CLIENTS) -> Iterator[list[Answer]]:
    """Sends `SENTENCES` during the `with` block; yields the list of answers.

    Each client has a connection, on which it sends a sentence when the previous one is
    answered. At the end, all requests are answered.
    """
    answers: list[Answer] = []
    indices = itertools.count()
    is_over = threading.Event()

    def ask() -> None:
        with contextlib.closing(
            http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        ) as connection:
            while not is_over.is_set():
                sentence = SENTENCES[next(indices) % len(SENTENCES)]
                answers.append(request(connection, sentence))

    threads = [threading.Thread(target=ask) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield answers
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


def assert_right(answers: Sequence[Answer], *versions: dict[str, str]) -> None:
    """Asserts that all are answered, and that a version answered each one."""
    for answer in answers:
        assert answer.status == 200, answer
        assert answer.output in [version[answer.sentence] for version in versions]


def request(connection: http.client.HTTPConnection, sentence: str) -> Answer:
    """Returns the answer to a request for a translation."""
    body = json.dumps({"instances": [sentence]})
    try:
        connection.request("POST", "/v1/models/ende:predict", body)
        response = connection.getresponse()
        content = response.read().decode()
    except (OSError, http.client.HTTPException) as error:
        connection.close()
        return Answer(sentence, 0, repr(error))
    if response.status == 200:
        content = json.loads(content)["predictions"][0]["texts"][0]
    return Answer(sentence, response.status, content)


def free_port() -> int:
    """Returns a port at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]
