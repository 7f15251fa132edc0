"""Attention weights, against NumPy and as the page draws them."""

import base64
import dataclasses
import json
import re

import numpy as np
import pytest
from helpers import numpy_transformer
from helpers.browser import needs_chromium
from helpers.command_line import run_json
from helpers.errors import refused
from helpers.numpy_transformer import NumpyTransformer, randomise, softmax
from helpers.page_checks import check_page, check_tab_order, check_views

from t2t_keras.decoding.graph_engine import ModelTranslator
from t2t_keras.hparam import HParams
from t2t_keras.model.layers import SelfAttention
from t2t_keras.model.transformer import Transformer
from t2t_keras.plugins.reports.attention import (
    Attention,
    SentenceAttention,
    attention_page,
    sentence_attention,
)
from t2t_keras.problem import TextProcessor
from t2t_keras.run import directory

LAYERS = 2
HEADS = 3
VOCAB = 17
SOURCES = [[3, 4, 5, 6, 7, 1], [8, 9, 1]]
TARGETS = [[5, 6, 1], [7, 8, 9, 10, 1]]


def test_the_command_names_the_page_once():
    result = {"page": "p.html", "layers": 2, "heads": 3, "source": "a", "target": "b"}
    lines = (
        Attention(output_dir="r", source="a", page="p.html").show(result).split("\n")
    )
    assert [line.split() for line in lines] == [
        *(["layers", "2"], ["heads", "3"], ["source", "a"], ["target", "b"])
    ]


def model(**options):
    sizes = {"num_layers": LAYERS, "d_model": 12, "d_ff": 8, "num_heads": HEADS}
    return randomise(Transformer(HParams(**sizes | options), VOCAB))


def pad(rows):
    width = max(map(len, rows))
    return np.array([[*row, *[0] * (width - len(row))] for row in rows], np.int32)


def numpy_weights(network, source, target, monkeypatch):
    """The weights in the order in which the NumPy model computes them."""
    all_weights = []

    def attention(query, key, value, allowed):
        logits = query @ key.T / np.sqrt(query.shape[-1])
        weights = softmax(np.where(allowed, logits, -1e9))
        all_weights.append(weights)
        return weights @ value

    monkeypatch.setattr(numpy_transformer, "attention", attention)
    NumpyTransformer(network)(source, target)
    heads = [
        np.stack(all_weights[i : i + HEADS]) for i in range(0, len(all_weights), HEADS)
    ]
    encoder = heads[:LAYERS]
    decoder = heads[LAYERS:]
    return encoder, decoder[::2], decoder[1::2]


@pytest.mark.parametrize("options", [{}, {"norm": "pre", "d_k": 3}], ids=str)
def test_weights_match_the_equations(options, monkeypatch):
    network = model(**options)
    maps = network.attention_maps(pad(SOURCES), pad(TARGETS))
    for row, pair in enumerate(zip(SOURCES, TARGETS, strict=True)):
        expected = numpy_weights(network, *pair, monkeypatch)
        for actual, expected_layers in zip(maps, expected, strict=True):
            assert len(actual) == len(expected_layers) == LAYERS
            for actual_layer, expected_layer in zip(
                actual, expected_layers, strict=True
            ):
                rows, columns = expected_layer.shape[1:]
                cut = np.asarray(actual_layer)[row, :, :rows, :columns]
                np.testing.assert_allclose(cut, expected_layer, atol=1e-5)


class WithoutWindow(Transformer):
    """A model whose decoder has an attention layer without `attention_window`."""

    def make_self_attention(self, causal):
        if not causal:
            return super().make_self_attention(causal)
        options = self.attention_options("self_attention")
        return SelfAttention(causal=causal, **options)


def test_weights_of_windows_are_matrices():
    """Even if other layers of the model have no windows."""
    plain = model()
    expected = plain.attention_maps(pad(SOURCES), pad(TARGETS))
    wide = dataclasses.replace(plain.hparams, attention_window=20)
    network = WithoutWindow(wide, VOCAB)
    network.set_weights(plain.get_weights())
    maps = network.attention_maps(pad(SOURCES), pad(TARGETS))
    for actual_layers, expected_layers in zip(maps, expected, strict=True):
        for actual, expected_layer in zip(actual_layers, expected_layers, strict=True):
            np.testing.assert_allclose(actual, expected_layer, atol=1e-5)


# The page


def drawn_weights(page):
    """Returns the weights in a page, [L, H, R, C] for each picture."""
    (text,) = re.findall(r'id="attention-data">(.*?)</script>', page)
    arrays = []
    for picture in json.loads(text):
        levels = np.frombuffer(base64.b64decode(picture["weights"]), np.uint8)
        shape = [picture["layers"], picture["heads"]]
        shape += [len(picture["rows"]), len(picture["columns"])]
        arrays.append(levels.reshape(shape) / 255)
    return arrays


def random_attention(source, target, encoder_layers=2, heads=3):
    rng = np.random.default_rng(0)
    rows = len(target)
    columns = len(source)
    return SentenceAttention(
        source,
        target,
        rng.random((encoder_layers, heads, columns, columns)),
        rng.random((2, heads, rows, rows)),
        rng.random((2, heads, rows, columns)),
        "T & U",
        "a < b",
    )


def test_page_shows_the_weights():
    attention = random_attention([*"abcd", "</script>"], ["w", "<x>", "y", "z"])
    page = attention_page(attention)
    cross, encoder, decoder = drawn_weights(page)
    np.testing.assert_allclose(cross, attention.cross, atol=1 / 255)
    np.testing.assert_allclose(encoder, attention.encoder, atol=1 / 255)
    np.testing.assert_allclose(decoder, attention.decoder, atol=1 / 255)
    assert "T &amp; U" in page and "a &lt; b" in page and "<x>" not in page
    assert page.count("</script>") == 2
    assert "http" not in page and "url(" not in page and "src=" not in page


def test_layers_without_weights_are_left_out():
    attention = random_attention(["a", "b"], ["c", "d", "e"])
    averages = attention._replace(decoder=np.zeros((2, 3, 3, 1)))
    assert len(drawn_weights(attention_page(attention))) == 3
    assert len(drawn_weights(attention_page(averages))) == 2


CELLS = "[...document.querySelectorAll('.attention tbody td')]"
SHOWN = f"{CELLS}.map(cell => Number(cell.dataset.weight))"
SELECT = """(() => {{
  const select = document.querySelector("select[name={name}]");
  select.value = "{value}";
  select.dispatchEvent(new Event("change", {{ bubbles: true }}));
}})()"""


@needs_chromium
def test_the_page_in_a_browser(tmp_path, chromium):
    """With tokens from right to left, and a token that is wider than a phone."""
    attention = random_attention(
        ["الكلب", "▁runs", "</s>"], ["ein", "x" * 200, "."], encoder_layers=3
    )
    (tmp_path / "page.html").write_text(attention_page(attention), encoding="utf-8")
    with chromium.page() as page:
        check_views(page, (tmp_path / "page.html").as_uri())
        check_tab_order(page)
        # At first, all heads of cross-attention's last layer.
        expected = attention.cross[1].ravel()
        np.testing.assert_allclose(page.run(SHOWN), expected, atol=0.003)
        page.run(SELECT.format(name="head", value="mean"))
        expected = attention.cross[1].mean(0).ravel()
        np.testing.assert_allclose(page.run(SHOWN), expected, atol=0.003)
        page.run(f"{CELLS}[0].focus()")
        sizes = f"{CELLS}.map(cell => cell.getBoundingClientRect().width)"
        assert min(page.run(sizes)) >= 24
        page.press("ArrowDown")
        page.press("ArrowRight")
        tip = page.run("document.querySelector('.tip').textContent")
        assert tip == f"{attention.cross[1, :, 1, 1].mean():.2f} {'x' * 200} → ▁runs"
        page.point(".attention tbody tr:first-child td:last-child")
        tip = page.run("document.querySelector('.tip').textContent")
        assert tip == f"{attention.cross[1, :, 0, 2].mean():.2f} ein → </s>"
        page.run(SELECT.format(name="head", value="each"))
        np.testing.assert_allclose(
            page.run(SHOWN), attention.cross[1].ravel(), atol=0.003
        )
        # The encoder has a layer more than the decoder.
        page.run("document.querySelectorAll('[name=picture]')[1].click()")
        page.run(SELECT.format(name="layer", value="2"))
        np.testing.assert_allclose(
            page.run(SHOWN), attention.encoder[2].ravel(), atol=0.003
        )
        page.run("document.querySelectorAll('[name=picture]')[2].click()")
        np.testing.assert_allclose(
            page.run(SHOWN), attention.decoder[1].ravel(), atol=0.003
        )
        page.run(SELECT.format(name="layer", value="mean"))
        page.run(SELECT.format(name="head", value="0"))
        expected = attention.decoder[:, 0].mean(0).ravel()
        np.testing.assert_allclose(page.run(SHOWN), expected, atol=0.003)
        check_page(page)


# Text


PAIR = ["the old house stands near the river .", "a dog runs ."]


def test_a_pair_of_texts(translator):
    tokenizer = translator.source_tokenizer
    attention = sentence_attention(translator, *PAIR)
    assert attention.source == [tokenizer.pieces[i] for i in tokenizer.encode(PAIR[0])]
    assert attention.target == [tokenizer.pieces[i] for i in tokenizer.encode(PAIR[1])]
    source = len(attention.source)
    target = len(attention.target)
    assert attention.encoder.shape == (1, 2, source, source)
    assert attention.decoder.shape == (1, 2, target, target)
    assert attention.cross.shape == (1, 2, target, source)
    ids = [np.array([tokenizer.encode(line)]) for line in PAIR]
    (cross,) = translator.model.attention_maps(*ids).cross
    np.testing.assert_allclose(attention.cross[0], cross[0], atol=1e-6)

    attention_to_output = sentence_attention(translator, PAIR[0])
    best = translator.n_best(PAIR[:1], 1)[0][0]
    assert attention_to_output.target == [tokenizer.pieces[i] for i in best.ids]
    refused("source is blank", sentence_attention, translator, " ")


def test_the_target_has_the_form_that_users_write(translator):
    class Reversed(TextProcessor):
        def preprocess_target(self, source, output):
            return output[::-1]

    problem = translator.problem.replace(text_processor=Reversed())
    reverse = ModelTranslator(
        problem, translator.model, *[translator.source_tokenizer] * 2
    )
    target = sentence_attention(reverse, PAIR[0], PAIR[1][::-1]).target
    assert target == sentence_attention(translator, *PAIR).target


def test_the_command_writes_a_page(translator, tmp_path, monkeypatch, capfd):
    class Run:
        def __init__(self, path):
            assert path == str(tmp_path)

        def translator(self, checkpoint):
            assert checkpoint == "average"
            return translator

    monkeypatch.setattr(directory, "RunDirectory", Run)
    (tmp_path / "config.json").touch()
    page = tmp_path / "page.html"
    words = ["--output_dir", tmp_path, "--checkpoint", "average"]
    words += ["--source", PAIR[0], "--target", PAIR[1], "--page", page]
    result = run_json(capfd, "attention", *words)
    attention = sentence_attention(translator, *PAIR)
    assert (result["layers"], result["heads"]) == (1, 2)
    assert (result["source"], result["target"]) == (attention.source, attention.target)
    drawn = drawn_weights(page.read_text(encoding="utf-8"))
    expected = [attention.cross, attention.encoder, attention.decoder]
    for picture, weights in zip(drawn, expected, strict=True):
        np.testing.assert_allclose(picture, weights, atol=1 / 255)
    assert "(start)" in page.read_text(encoding="utf-8")
