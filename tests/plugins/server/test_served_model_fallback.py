"""A converted run: what its engine refuses is answered by the run, loaded once."""

from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("starlette", reason="the extra [serve] is not installed")

from t2t_keras.decoding.engine import AlignmentHead, Hypothesis
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.errors import UserError
from t2t_keras.plugins.server.served_model import FallbackModel
from t2t_keras.problem import TextProcessor

ROWS = [{"texts": "a dog"}]


class Named:
    """Returns each text with its own name before it; may refuse options."""

    text_processor = TextProcessor()
    divides_batches = True
    options = DecodingOptions()

    def __init__(self, name, *refused):
        self.name = name
        self.refused = refused
        self.engine = self

    def score(self, sources, targets, options):
        return []

    def next_tokens(self, sources, count, options):
        return []

    def alignment_head(self):
        return AlignmentHead()

    def choose(self, **options):
        for name in self.refused:
            if options.get(name):
                raise UserError(f"{name}: this engine lacks it")
        return DecodingOptions(**options)

    def n_best(self, texts, advance=None, **options):
        self.choose(**options)
        return [[Hypothesis(f"{self.name} {text}", -1.0)] for text in texts]


def test_requests_go_to_the_translator_that_has_the_option(capfd):
    loaded = []

    def load_exact():
        loaded.append(Named("exact"))
        return loaded[-1]

    fast = Named("fast", "glossary", "forbidden")
    model = FallbackModel(fast, load_exact, alpha=1.0)
    assert not {"glossary", "forbidden"} & {*model.missing}

    def texts(**options):
        (output,) = model.predict("translate", ROWS, options)
        return output["texts"]

    assert texts() == texts(glossary=(), beam_size=2) == ["fast a dog"]
    assert not loaded
    with ThreadPoolExecutor(4) as pool:
        options = [{"glossary": (("dog", "Hund"),)}, {"forbidden": ("x",)}] * 4
        outputs = [*pool.map(lambda x: texts(**x), options)]
    assert outputs == [["exact a dog"]] * 8
    assert len(loaded) == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert line == "t2t serve: TensorFlow runs requests with glossary or forbidden"


def test_a_translator_that_refuses_nothing_needs_no_other():
    model = FallbackModel(Named("fast"), lambda: pytest.fail("it is loaded"))
    (output,) = model.predict("translate", ROWS, {"forbidden": ("x",)})
    assert output["texts"] == ["fast a dog"]


def test_a_run_that_has_disappeared_is_no_mistake_of_the_request(capfd):
    def load_exact():
        raise UserError("there is no model.ckpt-500")

    model = FallbackModel(Named("fast", "forbidden"), load_exact)
    with pytest.raises(RuntimeError, match="be loaded: there is no model"):
        model.predict("translate", ROWS, {"forbidden": ("x",)})
    assert not capfd.readouterr().err
