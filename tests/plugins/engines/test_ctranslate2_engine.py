"""The export for CTranslate2, and the verification of both kinds of exports."""

import itertools
import json
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers.command_line import python, run_refused, write
from helpers.decoding_models import LINES, transformer
from helpers.errors import refused

import t2t_keras
from t2t_keras.decoding import search_graph
from t2t_keras.decoding.constraint import BannedTokens
from t2t_keras.decoding.engine import AlignmentHead, Source
from t2t_keras.decoding.graph_engine import ModelTranslator
from t2t_keras.errors import UserError
from t2t_keras.exporting.saved_model import export_saved_model
from t2t_keras.exporting.verify import Output, Verification
from t2t_keras.hparam import HParams
from t2t_keras.model import build_model
from t2t_keras.plugins.engines import ctranslate2_export
from t2t_keras.plugins.engines.ctranslate2_engine import token_strings
from t2t_keras.plugins.engines.ctranslate2_export import export_ctranslate2
from t2t_keras.plugins.engines.ctranslate2_pool import TranslatorPool
from t2t_keras.plugins.interop.t2t.subwords import (
    ESCAPE_CHARACTERS,
    SubwordTokenizer,
    save_pieces,
)
from t2t_keras.problem import Problem
from t2t_keras.text import sentences, sentences_graph
from t2t_keras.text.alignment import format_alignment
from t2t_keras.text.sentence_piece import SentencePieceTokenizer
from t2t_keras.text.sentences import split_sentences
from t2t_keras.text.vocabulary import EOS, PAD

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
    "small values, unscaled": {"d_k": 12, "d_v": 4, "attention": "unscaled"},
    "bfloat16": {"compute_dtype": "bfloat16"},
    "biases, swish": EXTENDED
    | {"attention_bias": True, "output_bias": True, "activation": "swish"}
    | {"position": "halves", "norm_epsilon": 0.01, "d_k": 4, "d_v": 12},
}

FAST = ("separate vocabularies, learned positions", "biases, swish")


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
    return ModelTranslator(problem, model, source, target)


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
    texts = np.array(tokens)
    return [texts[ids[:-1]].tolist() for ids in rows]  # without EOS


@pytest.mark.parametrize(
    "name",
    [x if x in FAST else pytest.param(x, marks=pytest.mark.slow) for x in MODELS],
)
def test_ids_and_scores_match_the_translator(name, tokenizers, tmp_path):
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
        (result,) = model.translate_batch(
            [source],
            beam_size=1,
            length_penalty=0,
            min_decoding_length=0,
            max_decoding_length=len(ids) + EXTRA_LENGTH,
            return_end_token=True,
            suppress_sequences=[[vocabulary(path, "target")[0]]],
        )
        ctranslate2_tokens = vocabulary(path, "target")
        assert tuple(map(ctranslate2_tokens.index, result.hypotheses[0])) == best.ids
    targets = [translator.target_tokenizer.encode(text) for text in TARGETS]
    scores = model.score_batch(tokens, strings(path, "target", targets))
    for result, score in zip(scores, exact.score(TEXTS, TARGETS), strict=True):
        assert len(result.log_probs) == score.tokens
        assert sum(result.log_probs) == pytest.approx(
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

    example = Path(__file__).parents[3] / "examples" / "serve_ctranslate2.py"
    process = subprocess.run(
        [sys.executable, example, path],
        input="\n".join([*TEXTS, "", "a dog .\r", "a dog ."]).encode(),
        capture_output=True,
        check=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    lines = process.stdout.split(b"\n")  # the bytes of a random model, not text
    assert len(lines) == len(TEXTS) + 4
    assert lines[-3] == lines[-2]  # also of a file from Windows
    assert lines[len(TEXTS)] == lines[-1] == b"" and any(lines)


def test_strings_of_tokens_are_different_and_not_empty(tmp_path):
    file = tmp_path / "v.subwords"
    doubles = ["the_", "", "", "a", "<pad>", "</s>", "<5>", "<unk>", "a"]
    characters = sorted({*ESCAPE_CHARACTERS, *"<pad>_<EOS>_", *"".join(doubles)})
    save_pieces(["<pad>_", "<EOS>_", *doubles, *characters], file)
    tokenizer = SubwordTokenizer(file)
    names = token_strings(tokenizer)
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
    (result,) = model.translate_batch([source], max_decoding_length=12, **options)
    assert len(result.hypotheses[0]) == 12
    (scored,) = model.score_batch([source], result.hypotheses)  # with EOS
    assert len(scored.log_probs) == 13
    with pytest.raises(RuntimeError, match="No position encodings are defined"):
        model.translate_batch([source], max_decoding_length=14, **options)


# Processors without VNNI saturate products of 8 bits, which these small models show: so
# the outputs are compared in 16 bits only.
def test_quantized_models(translator, tmp_path):
    verification = Verification(TEXTS)
    sizes = []
    for dtype, verify in ((None, None), ("float16", verification), ("int8", None)):
        path = str(tmp_path / f"{dtype}")
        options = {"quantization": dtype, "verify": verify}
        sizes.append(export_ctranslate2(translator, path, **options))
    assert sizes[0] > max(sizes[1:])
    assert len(TEXTS) / 2 <= verification.identical <= len(TEXTS)
    model = ctranslate2.Translator(path, intra_threads=1)
    assert model.translate_batch([["▁a"]])[0].hypotheses[0]


def positions_from_1(spec):
    for stack in (spec.encoder, spec.decoder):
        table = stack.position_encodings.encodings
        stack.position_encodings.encodings = np.concatenate([table[1:], table[-1:]])


@pytest.mark.parametrize(
    ("fault", "bits"),
    [
        (positions_from_1, "float16"),
        (lambda spec: setattr(spec.config, "eos_token", spec.config.unk_token), None),
        (lambda spec: setattr(spec.config, "add_source_eos", False), None),
    ],
)
def test_a_wrong_export_is_refused(fault, bits, translator, tmp_path, monkeypatch):
    right = ctranslate2_export._spec

    def wrong(*args):
        spec = right(*args)
        fault(spec)
        return spec

    options = {"quantization": bits, "overwrite": True}
    path = tmp_path / "model"
    export_ctranslate2(translator, path, **options, verify=Verification(TEXTS))
    modified = (path / "model.bin").stat().st_mtime_ns
    monkeypatch.setattr(ctranslate2_export, "_spec", wrong)
    with pytest.raises(UserError, match=r"^--verify: the export is refused, because"):
        export_ctranslate2(translator, path, **options, verify=Verification(TEXTS))
    assert [entry.name for entry in tmp_path.iterdir()] == ["model"]
    assert (path / "model.bin").stat().st_mtime_ns == modified
    export_ctranslate2(translator, tmp_path / "new")


def test_the_refusal_has_the_first_sentence_that_differs(translator):
    verification = Verification(TEXTS)
    verification.expect(translator, beam_size=1)
    right = []

    def translate(sources):
        best = translator.n_best_of_ids(sources, verification.texts, beam_size=1)
        right.extend(Output(outputs[0].ids, outputs[0].score) for outputs in best)
        return right

    verification.check(translate)
    assert verification.identical == len(TEXTS)
    wrong = [*right]
    wrong[2] = Output((9, 1), -1.5)
    wrong[4] = Output(right[4].ids, right[4].score + 2e-4)
    message = refused("", verification.check, lambda sources: wrong)
    assert f"2 of {len(TEXTS)} outputs differ" in message
    assert f"for '{verification.texts[2]}' the export has" in message
    assert re.search(r"\(score -1\.50000, ids 9 1\), and the run has '", message)
    assert verification.identical == len(TEXTS) - 2


def test_what_ctranslate2_cannot_express(tokenizers, tmp_path):
    tokenizer = tokenizers[0]
    parser = {"model": "next_word_transformer", "position": "sinusoidal"}
    for hparams, message in (
        ({"attention_window": 4}, "hparams: attention_window is 4, and CTranslate2"),
        (parser, "hparams: model is 'next_word_transformer', and CTranslate2"),
    ):
        unsupported = translator_of(tokenizer, tokenizer, **hparams)
        refused(message, export_ctranslate2, unsupported, tmp_path / "x")

    def only_words(problem, tokenizer):
        return lambda texts, limits: (BannedTokens([5], tokenizer.vocab_size), limits)

    plain = translator_of(tokenizer, tokenizer)
    problem = plain.problem.replace(name="tagging", constraint=only_words)
    tagger = ModelTranslator(problem, plain.model, tokenizer, tokenizer)
    message = "'tagging' has the constraint 'only_words'"
    refused(message, export_ctranslate2, tagger, tmp_path / "x")
    assert not list(tmp_path.iterdir())


# The engine: a translator without TensorFlow.

PREFIXES = ["the old", "", "a "] * 3
LONG = " ".join([*TEXTS, "naïve 日本語。「a b」 c. Dr. X"])


@pytest.fixture(scope="module")
def export(translator, tmp_path_factory):
    """The export of `translator` with its defaults, which are searched greedily."""
    path = tmp_path_factory.mktemp("engine") / "model"
    translator.options = translator.choose(beam_size=1, max_source_length=40)
    export_ctranslate2(translator, path, verify=Verification(TEXTS))
    return path


@pytest.fixture(scope="module")
def engine(export):
    return t2t_keras.load(export)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"min_length": 4, "length_penalty": "average", "batch_tokens": 9},
        {"prefixes": PREFIXES, "alpha": 1.2},
        {"max_source_length": 9, "length_penalty": "power"},
        {"max_source_length": 9, "truncate": True, "extra_length": 2},
        {"max_source_length": 46, "extra_length": 0, "min_length": 46},
        {"split_sentences": True},
        {"split_sentences": True, "max_source_length": 9, "prefixes": PREFIXES},
        {"split_sentences": True, "max_source_length": 9, "truncate": True},
    ],
    ids=lambda options: "-".join(options),
)
def test_greedy_outputs_match_the_translator(options, engine, translator):
    texts = [*LINES[:8], LONG]
    annotated = options | {"token_scores": True}
    actual = engine.n_best(texts, **annotated, alignment=engine.alignment_head())
    head = translator.alignment_head()
    for (output,), (best,) in zip(
        actual, translator.n_best(texts, **annotated, alignment=head), strict=True
    ):
        assert output.ids == best.ids and output.text == best.text
        assert output.alignment == best.alignment
        for name in ("score", "log_prob", "token_log_probs"):
            close = pytest.approx(getattr(best, name), abs=1e-4)
            assert getattr(output, name) == close
    encode = translator.source_tokenizer.encode
    for text, (output,) in zip(texts, actual, strict=True):
        parts = [text.strip()]
        if "split_sentences" in options:
            parts = split_sentences(text.strip())
        longest = max(len(encode(part)) for part in parts)
        assert output.sentences == len(parts)
        assert output.is_truncated == ("truncate" in options and longest > 9)


def test_beams_are_scored_and_ordered_as_those_of_the_translator(engine, translator):
    options = {"beam_size": 4, "extra_length": 14, "max_source_length": 32}
    num_equal = 0
    for penalty in ("gnmt", "power", "average"):
        beam_options = options | {"length_penalty": penalty, "token_scores": True}
        actual, expected = (
            x.n_best(TEXTS, 3, **beam_options) for x in (engine, translator)
        )
        for rows, bests in zip(actual, expected, strict=True):
            keys = [(x.ids[-1] != 1, -x.score) for x in rows]
            assert keys == sorted(keys) and len({x.text for x in rows}) == 3
            scores = {best.ids: best.score for best in bests}
            for x in rows:
                assert x.score == pytest.approx(scores.get(x.ids, x.score), abs=1e-4)
                assert x.log_prob == pytest.approx(sum(x.token_log_probs))
            num_equal += rows[0].ids == bests[0].ids
    assert num_equal > len(TEXTS)  # random weights: many are nearly as good


def test_next_tokens_match_the_translator(engine, translator):
    tokenizer = translator.source_tokenizer
    sources = []
    for text, prefix in itertools.product(LINES[:2], ("", "a", "the old river")):
        ids = translator.target_tokenizer.encode(prefix)[:-1]
        sources.append(Source(tokenizer.encode(text), text, ids))
    options = translator.options
    expected = translator.engine.next_tokens(sources, 6, options)
    assert engine.engine.next_tokens(sources, 6, options) == expected
    too_long = [sources[0]._replace(prefix=[5] * 50)]
    refused("a prefix can have", engine.engine.next_tokens, too_long, 6, options)


def test_the_end_is_among_the_next_tokens_and_padding_is_not(tokenizers, tmp_path):
    tokenizer = tokenizers[0]
    translator = translator_of(tokenizer, tokenizer, num_layers=2)
    model = translator.model
    ids = tf.constant([tokenizer.encode(TEXTS[0])])
    state = model.decoder_outputs(ids, ids)[0][0, 1].numpy()  # [D]
    table = model.softmax_embedding.table.numpy()  # [V, D]
    third = np.sort(table @ state)[-3]
    table[PAD] = 3 * state
    table[EOS] = state * third / (state @ state)
    model.softmax_embedding.table.assign(table)
    export_ctranslate2(translator, tmp_path / "export")
    engine = t2t_keras.load(tmp_path / "export").engine
    sources = []
    for text, prefix in itertools.product(TEXTS[:3], ("", "a", "the old river")):
        prefix_ids = tokenizer.encode(prefix)[:-1]
        sources.append(Source(tokenizer.encode(text), text, prefix_ids))
    ranks = set()
    for count in (1, 4, 8, 400):
        expected = translator.engine.next_tokens(sources, count, translator.options)
        assert engine.next_tokens(sources, count, translator.options) == expected
        ranks |= {row.index(EOS) for row in expected if EOS in row}
    assert ranks & set(range(1, 8))  # the premise


def test_scores_match_the_translator(engine, translator):
    options = {"max_source_length": 12}
    sources = [*TEXTS, LONG]
    targets = [*TARGETS, LONG]
    actual = engine.score(sources, targets, **options)
    for actual_score, score in zip(
        actual, translator.score(sources, targets, **options), strict=True
    ):
        assert (actual_score.tokens, actual_score.ids) == (score.tokens, score.ids)
        assert actual_score.token_log_probs == pytest.approx(
            score.token_log_probs, abs=1e-4
        )
        assert actual_score.is_truncated == score.is_truncated
    assert actual[-1].is_truncated


def test_a_call_leaves_room_for_others(export):
    """No more than one batch of a call waits for a thread."""

    class Result:
        def result(self):
            pending.remove(self)

    pending = []

    def submit(rows):
        pending.append(Result())
        return [pending[-1]]

    pool = TranslatorPool(export)
    others = []
    for other_calls in range(3):
        idle = max(pool.workers - other_calls, 0)
        assert pool.num_idle == max(idle, 1)
        sizes = [len(pending) for _ in pool.run([[0]] * 9, submit)]
        assert sizes == [min(idle, remaining) for remaining in range(9)[::-1]]
        assert not pending
        others.append(pool.run([[0]], submit))
        next(others[-1])  # it has not ended


def test_sampling_and_ngrams(engine):
    options = {"sampling": True, "top_k": 2, "seed": 3, "token_scores": True}
    samples = engine.n_best(TEXTS, 5, **options)
    assert samples == engine.n_best(TEXTS, 5, **options)
    assert samples != engine.n_best(TEXTS, 5, **options | {"seed": 4})
    assert {len(rows) for rows in samples} == {5}
    for rows in engine.n_best(TEXTS, no_repeat_ngram=1):
        assert len({*rows[0].ids}) == len(rows[0].ids)


def test_samples_read_the_files_once_and_verify_them(export, tmp_path):
    changed = shutil.copytree(export, tmp_path / "export")
    options = {"sampling": True, "top_k": 2, "seed": 3}
    engine = t2t_keras.load(changed)
    changed_engine = t2t_keras.load(changed)
    samples = engine.translate(TEXTS, **options)
    model = changed / "model.bin"
    content = bytearray(model.read_bytes())
    content[-1] ^= 1
    model.write_bytes(content)
    assert engine.translate(TEXTS, **options) == samples
    refused(
        "model.bin is missing or does not have",
        changed_engine.translate,
        TEXTS,
        **options,
    )
    shutil.rmtree(changed)
    assert engine.translate(TEXTS, **options) == samples
    refused("cannot read .*json", changed_engine.translate, TEXTS, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"forbidden": ["a"]}, "forbidden: CTranslate2 does not support it; use"),
        ({"coverage_penalty": 0.2, "beam_size": 2}, "coverage_penalty: CTranslate2"),
        ({"constraint": "trees"}, "constraint: CTranslate2 does not support it"),
        ({"extra_length": 7}, "their sum, 47, is more than the 46 positions"),
        ({"prefixes": ["a", "b " * 40]}, "this export a prefix can have at most 45"),
    ],
)
def test_what_the_engine_lacks_is_refused(options, message, engine):
    refused(message, engine.n_best, ["a", "b"], **options)


def test_long_texts_are_split_and_joined_as_in_the_graph(tokenizers):
    pick = random.Random(0)
    units = [
        *"ab.!。  ",
        ". ",
        " Mr",
        "\n",
        "\t",
        "日本語",
        "the old ",
        "\u3000",
        "<2de> ",
        '!")?' * 20,
    ]
    tokenizer = tokenizers[0]

    def encode(texts):
        rows = tokenizer.encode_batch([text.decode() for text in texts.numpy()])
        return tf.ragged.constant(rows, tf.int32, ragged_rank=1)

    for max_length in [2, 9, 30] * 6:
        text = "".join(pick.choices(units, k=pick.randrange(1, 60)))
        tags = ("<2de>", "<2fr>")[: pick.randrange(3)]
        expected = sentences_graph.split_long_text_graph(
            tf.constant(text), encode, max_length, tags
        )
        parts = sentences.split_long_text(
            text, tokenizer.encode_batch, max_length, tags
        )
        assert parts == expected.to_list(), repr(text)
        outputs = [tokenizer.decode(part).replace("\n", " ") for part in parts]
        rows = tf.ragged.constant([["", *outputs]])
        (joined,) = sentences_graph.join_outputs_graph(rows)
        assert sentences.join_outputs(outputs) == joined.numpy().decode()


TRANSLATE = """
import sys
from t2t_keras.cli import main
path, folder = sys.argv[1:]
files = ["--input", f"{folder}/in", "--output", f"{folder}/out"]
more = ["--token_scores", "--alignments", f"{folder}/links"]
assert main(["translate", path, *files, *more]) == 0
print({"tensorflow", "keras", "torch"} & sys.modules.keys())
"""


def test_the_program_translates_without_tensorflow(engine, export, tmp_path, capfd):
    write(tmp_path / "in", *TEXTS)
    assert python(TRANSLATE, export, tmp_path) == "set()\n"
    rows = [line.split("\t") for line in (tmp_path / "out").read_text().splitlines()]
    n_best = engine.n_best(TEXTS, token_scores=True, alignment=AlignmentHead())
    assert [row[3] for row in rows] == [output.text for (output,) in n_best]
    assert len(json.loads(rows[0][4])) == len(n_best[0][0].ids)
    links = [format_alignment(output.alignment) for (output,) in n_best]
    assert (tmp_path / "links").read_text().splitlines() == links
    flags = "translate", "--model", export, "--input", tmp_path / "in"
    sentence = run_refused(capfd, *flags, "--decode_hparams", "protect=url")
    assert "protect: CTranslate2 does not support it" in sentence
    assert "an export is built in" not in run_refused(
        capfd, *flags, "--checkpoint", "1"
    )


SERVE = """
import json, sys, time
import t2t_keras
from starlette.testclient import TestClient
from t2t_keras.plugins.server import command
from t2t_keras.plugins.server.app import make_app
from t2t_keras.plugins.server.served_model import ServedModel
from t2t_keras.plugins.server.versions import FixedModel

serve = command.Serve(model=(f"ct={sys.argv[1]}",))
serve.check()
assert not serve.needs_tensorflow()
load = lambda: ServedModel(t2t_keras.load(sys.argv[1]), n_best=2, beam_size=3)
models = {"ct": FixedModel(load)}
with TestClient(make_app(models, command.Limits())) as client:
    while client.get("/health").status_code != 200:
        time.sleep(0.01)
    for line in sys.stdin:
        answer = client.post("/v1/models/ct:predict", content=line)
        print(answer.status_code, answer.text)
print({"tensorflow", "keras", "torch"} & sys.modules.keys())
"""


def test_the_server_needs_no_tensorflow(engine, export):
    pairs = {"texts": TEXTS, "targets": TARGETS}
    requests = [
        {"inputs": TEXTS},
        {"signature_name": "score", "inputs": pairs},
        {"signature_name": "options", "inputs": {}},
        {
            "signature_name": "translate",
            "instances": [{"texts": "a", "glossary": [["a", "b"]]}],
        },
    ]
    lines = "".join(f"{json.dumps(request)}\n" for request in requests)
    *answers, modules = python(SERVE, export, input=lines).splitlines()
    codes, bodies = zip(*(answer.split(" ", 1) for answer in answers), strict=True)
    assert codes == ("200", "200", "200", "400") and modules == "set()"
    best, scores, options = (json.loads(body)["outputs"] for body in bodies[:3])
    expected = engine.n_best(TEXTS, 2, beam_size=3)
    for texts, outputs in zip(best["texts"], expected, strict=True):
        assert texts == [output.text for output in outputs]
    assert scores["ids"] == [[*score.ids] for score in engine.score(TEXTS, TARGETS)]
    assert (options["n_best"], options["glossary"]) == (2, [[["", ""]]])
    assert "glossary: CTranslate2 does not support it" in bodies[3]


def test_a_damaged_export_is_refused(export, tmp_path):
    path = shutil.copytree(export, tmp_path / "model")
    (path / "config.json").write_text("{}")
    message = "config.json is missing or does not have its checksum"
    refused(message, t2t_keras.load, path)


# The verification of a SavedModel.


@pytest.mark.slow
@pytest.mark.parametrize("compute_dtype", ["float32", "bfloat16"])
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


@pytest.mark.slow
def test_a_wrong_saved_model_is_refused(translator, tmp_path, monkeypatch):
    translator.translate(TEXTS[:1])  # traces the right search; the export's is wrong
    right = search_graph.beam_search

    def wrong(model, source, **options):
        return right(model, tf.where(source == 1, 2, source), **options)

    monkeypatch.setattr(search_graph, "beam_search", wrong)
    with pytest.raises(UserError, match=r"^--verify: the export is refused"):
        export_saved_model(translator, tmp_path / "1", verify=Verification(TEXTS))
    assert not list(tmp_path.iterdir())
