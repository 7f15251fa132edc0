"""The export for CTranslate2, and the verification of both kinds of exports."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from decoding_models import LINES, transformer

from t2t_keras.decoding import translator as translator_module
from t2t_keras.decoding.constraint import BannedTokens
from t2t_keras.decoding.translator import Translator
from t2t_keras.export.saved_model import export_saved_model
from t2t_keras.export.verify import Output, Verification
from t2t_keras.hparam import HParams
from t2t_keras.model import build_model
from t2t_keras.option import UserError
from t2t_keras.plugins.engines import ctranslate2_model
from t2t_keras.plugins.engines.ctranslate2_model import export_ctranslate2
from t2t_keras.plugins.interop.subword import (
    ESCAPE_CHARACTERS,
    SubwordTokenizer,
    save_pieces,
)
from t2t_keras.problem import Problem
from t2t_keras.text.sentence_piece import SentencePieceTokenizer

ctranslate2 = pytest.importorskip("ctranslate2", reason="needs the extra [ctranslate2]")

TEXTS = [line for line in LINES if line.strip()]
TARGETS = [*TEXTS[1:], "a book"]
EXTRA_LENGTH = 6

SHARED = {"share_embeddings": True, "num_layers": 2}
EXTENDED = SHARED | {"model": "extended_transformer"}
MODELS = {
    "post-norm, sinusoids": SHARED | {"position": "sinusoidal"},
    "separate vocabularies, learned positions": {"max_positions": 5, "norm": "pre"},
    "target space, fewer decoder layers": EXTENDED
    | {"position": "t2t", "target_space": True, "num_decoder_layers": 1},
    "small keys": {"d_k": 4, "d_v": 12, "num_layers": 2},
    "small values, unscaled": {"d_k": 12, "d_v": 4, "attention": "unscaled"},
    "bfloat16": {"compute_dtype": "bfloat16"},
    "biases, swish": EXTENDED
    | {"attention_bias": True, "output_bias": True, "activation": "swish"}
    | {"position": "halves", "norm_epsilon": 0.01, "d_k": 4, "d_v": 12},
}


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory):
    """Two SentencePiece vocabularies of different sizes."""
    folder = tmp_path_factory.mktemp("vocab")
    for size in (340, 330):
        SentencePieceTokenizer.train(LINES * 2, folder / f"{size}.spm", size)
    return [SentencePieceTokenizer(folder / f"{size}.spm") for size in (340, 330)]


def translator_of(source, target, **hparams):
    """A translator with random weights, whose outputs have many lengths."""
    sizes = source.vocab_size, None if source is target else target.vocab_size
    if hparams.get("position", "learned") == "learned":
        model = transformer(*sizes, **hparams)
    else:
        keras.utils.set_random_seed(1)
        small = {"d_model": 16, "d_ff": 32, "num_heads": 2}
        model = build_model(HParams().override(**small | hparams), *sizes)
    random = np.random.default_rng(2)
    for weight in model.weights:  # biases and norms begin as zeros and ones
        if weight.name in ("bias", "output_bias", "beta", "gamma"):
            weight.assign(weight + 0.1 * random.normal(size=weight.shape))
    problem = Problem(summary="", extra_length=EXTRA_LENGTH)
    return Translator(problem, model, source, target)


@pytest.fixture(scope="module")
def translator(tokenizers):
    return translator_of(tokenizers[0], tokenizers[0], num_layers=2)


def vocabulary(path, side):
    """The strings of the tokens, as the export has them."""
    shared = path / "shared_vocabulary.json"
    file = shared if shared.exists() else path / f"{side}_vocabulary.json"
    return json.loads(file.read_text())


def strings(path, side, rows):
    tokens = vocabulary(path, side)
    return [[tokens[i] for i in ids[:-1]] for ids in rows]  # without EOS


@pytest.mark.parametrize("name", MODELS)
def test_ids_and_scores_are_those_of_the_translator(name, tokenizers, tmp_path):
    path = tmp_path / "model"
    target = tokenizers["separate" in name]
    translator = translator_of(tokenizers[0], target, **MODELS[name])
    size = export_ctranslate2(translator, path)
    assert size == sum(file.stat().st_size for file in path.iterdir())
    model = ctranslate2.Translator(str(path), intra_threads=1)
    exact = translator.with_compute_dtype("float32")

    sources = [translator.source_tokenizer.encode(text) for text in TEXTS]
    tokens = strings(path, "source", sources)
    expected = exact.n_best(TEXTS, beam_size=1, alpha=0.0)
    for ids, source, (best,) in zip(sources, tokens, expected, strict=True):
        (found,) = model.translate_batch(
            [source],
            beam_size=1,
            length_penalty=0,
            min_decoding_length=0,
            max_decoding_length=len(ids) + EXTRA_LENGTH,
            return_end_token=True,
            suppress_sequences=[[vocabulary(path, "target")[0]]],
        )
        own = vocabulary(path, "target")
        assert tuple(map(own.index, found.hypotheses[0])) == best.ids
    targets = [translator.target_tokenizer.encode(text) for text in TARGETS]
    scores = model.score_batch(tokens, strings(path, "target", targets))
    for found, score in zip(scores, exact.score(TEXTS, TARGETS), strict=True):
        assert len(found.log_probs) == score.tokens
        assert sum(found.log_probs) == pytest.approx(
            score.log_prob, abs=1e-5 * score.tokens
        )


def test_the_tokenizers_lie_beside_the_model(translator, tokenizers, tmp_path):
    """So `examples/serve_ctranslate2.py` needs neither this package nor TensorFlow."""
    import sentencepiece

    path = tmp_path / "model"
    translator = translator_of(*tokenizers)
    export_ctranslate2(translator, path)
    for side, tokenizer in zip(("source", "target"), tokenizers, strict=True):
        file = str(path / f"{side}.spm")
        library = sentencepiece.SentencePieceProcessor(model_file=file)
        ids = [tokenizer.encode(text) for text in TEXTS]
        assert library.encode(TEXTS, out_type=str) == strings(path, side, ids)

    example = Path(__file__).parents[1] / "examples" / "serve_ctranslate2.py"
    process = subprocess.run(
        [sys.executable, example, path],
        input="\n".join([*TEXTS, "", "a dog ."]).encode(),
        capture_output=True,
        check=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    lines = process.stdout.split(b"\n")  # the bytes of a random model, not text
    assert len(lines) == len(TEXTS) + 3
    assert lines[len(TEXTS)] == lines[-1] == b"" and any(lines)


def test_strings_of_tokens_are_different_and_not_empty(tmp_path):
    file = tmp_path / "v.subwords"
    doubles = ["the_", "", "", "a", "<pad>", "</s>", "<5>", "<unk>", "a"]
    characters = sorted({*ESCAPE_CHARACTERS, *"<pad>_<EOS>_", *"".join(doubles)})
    save_pieces(["<pad>_", "<EOS>_", *doubles, *characters], file)
    tokenizer = SubwordTokenizer(file)
    names = ctranslate2_model._token_strings(tokenizer)
    assert len(set(names)) == len(names) == tokenizer.vocab_size
    assert all(names)
    assert names[:3] == ["<pad>", "</s>", "the_"]
    translator = translator_of(tokenizer, tokenizer)
    verification = Verification(["the the", "a", "17"])
    path = tmp_path / "model"
    export_ctranslate2(translator, path, verify=verification)
    assert verification.identical == 3
    assert vocabulary(path, "source") == names
    assert (path / "source.subwords").read_bytes() == file.read_bytes()


def test_the_longest_source_and_output_have_positions(translator, tmp_path):
    export_ctranslate2(translator, tmp_path / "x", max_source_length=9, extra_length=3)
    model = ctranslate2.Translator(str(tmp_path / "x"), intra_threads=1)
    source = vocabulary(tmp_path / "x", "source")[10:18]
    options = {"beam_size": 1, "suppress_sequences": [["</s>"]]}
    (found,) = model.translate_batch([source], max_decoding_length=12, **options)
    assert len(found.hypotheses[0]) == 12
    with pytest.raises(RuntimeError, match="No position encodings are defined"):
        model.translate_batch([source], max_decoding_length=13, **options)


# Processors without VNNI saturate products of 8 bits, which these small models show: so
# the outputs are compared in 16 bits only.
@pytest.mark.parametrize(("quantization", "is_verified"), [("float16", 1), ("int8", 0)])
def test_quantized_models(quantization, is_verified, translator, tmp_path):
    verification = Verification(TEXTS) if is_verified else None
    exact = export_ctranslate2(translator, tmp_path / "exact")
    path = tmp_path / "quantized"
    size = export_ctranslate2(
        translator, path, quantization=quantization, verify=verification
    )
    assert size < exact
    if verification:
        assert len(TEXTS) / 2 <= verification.identical <= len(TEXTS)
    model = ctranslate2.Translator(str(path), intra_threads=1)
    assert model.translate_batch([["▁a"]])[0].hypotheses[0]


def other_end(spec):
    spec.config.eos_token = spec.config.unk_token


def positions_from_1(spec):
    for stack in (spec.encoder, spec.decoder):
        table = stack.position_encodings.encodings
        stack.position_encodings.encodings = np.concatenate([table[1:], table[-1:]])


def no_end_of_source(spec):
    spec.config.add_source_eos = False


@pytest.mark.parametrize(
    ("fault", "quantization"),
    [(other_end, None), (positions_from_1, "float16"), (no_end_of_source, None)],
)
def test_a_wrong_export_is_refused(
    fault, quantization, translator, tmp_path, monkeypatch
):
    right = ctranslate2_model._spec

    def wrong(*args):
        spec = right(*args)
        fault(spec)
        return spec

    options = {"quantization": quantization, "overwrite": True}
    path = tmp_path / "model"
    export_ctranslate2(translator, path, **options, verify=Verification(TEXTS))
    before = (path / "model.bin").stat().st_mtime_ns
    monkeypatch.setattr(ctranslate2_model, "_spec", wrong)
    with pytest.raises(UserError, match=r"^--verify: the export is refused, because"):
        export_ctranslate2(translator, path, **options, verify=Verification(TEXTS))
    assert [entry.name for entry in tmp_path.iterdir()] == ["model"]
    assert (path / "model.bin").stat().st_mtime_ns == before
    export_ctranslate2(translator, tmp_path / "new")


def test_the_refusal_has_the_first_sentence_that_differs(translator):
    verification = Verification(TEXTS)
    verification.expect(translator, beam_size=1)
    right = list(verification._expected)
    verification.check(lambda sources: right)
    assert verification.identical == len(TEXTS)
    wrong = [*right]
    wrong[2] = Output((9, 1), -1.5)
    wrong[4] = Output(right[4].ids, right[4].score + 2e-4)
    with pytest.raises(UserError) as refusal:
        verification.check(lambda sources: wrong)
    message = str(refusal.value)
    assert f"2 of {len(TEXTS)} outputs differ" in message
    assert f"for '{verification.texts[2]}' the export has" in message
    assert re.search(r"\(score -1\.50000, ids 9 1\), and the run has '", message)
    assert verification.identical == len(TEXTS) - 2


def test_what_ctranslate2_cannot_express(tokenizers, tmp_path):
    tokenizer = tokenizers[0]
    windowed = translator_of(tokenizer, tokenizer, attention_window=4)
    with pytest.raises(UserError, match="hparams: attention_window is 4, and CTransl"):
        export_ctranslate2(windowed, tmp_path / "x")

    def only_words(problem, tokenizer):
        return lambda texts, limits: (BannedTokens([5], tokenizer.vocab_size), limits)

    plain = translator_of(tokenizer, tokenizer)
    problem = plain.problem.replace(name="tagging", constraint=only_words)
    with pytest.raises(UserError, match="'tagging' has the constraint 'only_words'"):
        export_ctranslate2(
            Translator(problem, plain.model, tokenizer, tokenizer), tmp_path / "x"
        )
    assert not list(tmp_path.iterdir())


# The verification of a SavedModel.


@pytest.mark.parametrize(
    "compute_dtype", ["float32", pytest.param("bfloat16", marks=pytest.mark.slow)]
)
def test_a_saved_model_is_verified_with_its_own_options(
    compute_dtype, tokenizers, tmp_path
):
    tokenizer = tokenizers[0]
    translator = translator_of(tokenizer, tokenizer, compute_dtype=compute_dtype)
    verification = Verification([*TEXTS, " "])
    banned = BannedTokens(range(200), tokenizer.vocab_size)
    options = {"constraint": banned, "beam_size": 3, "n_best": 2, "extra_length": 2}
    export_saved_model(
        translator, tmp_path / "1", verify=verification, max_source_length=9, **options
    )
    assert verification.identical == len(verification.texts) == len(TEXTS)
    assert (tmp_path / "1" / "saved_model.pb").exists()


def test_a_wrong_saved_model_is_refused(translator, tmp_path, monkeypatch):
    translator.translate(TEXTS[:1])  # traces the right search; the export's is wrong
    right = translator_module.beam_search

    def wrong(model, source, **options):
        return right(model, tf.where(source == 1, 2, source), **options)

    monkeypatch.setattr(translator_module, "beam_search", wrong)
    with pytest.raises(UserError, match=r"^--verify: the export is refused"):
        export_saved_model(translator, tmp_path / "1", verify=Verification(TEXTS))
    assert not list(tmp_path.iterdir())
