"""Exports as a SavedModel: what they answer, what they hold, and what is refused."""

import collections
import dataclasses
import errno
import fcntl
import itertools
import json
import logging
import os
import re
import shutil
import subprocess
import types
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from helpers.command_line import run_refused, write
from helpers.decoding_models import LINES, text_translator, transformer
from helpers.errors import refused
from helpers.log_messages import messages
from tensorflow.core.protobuf import saved_model_pb2

import t2t_keras
from t2t_keras.decoding.constraint import BannedTokens
from t2t_keras.decoding.graph_engine import ModelTranslator
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.exporting import saved_model
from t2t_keras.exporting.directory import SUMS, replaced, require_free
from t2t_keras.exporting.formats import export_formats
from t2t_keras.exporting.saved_model import (
    WARM_UP,
    export_saved_model,
    load_saved_model,
)
from t2t_keras.exporting.saved_model_engine import SavedModelEngine
from t2t_keras.exporting.served_graph import ServedGraph, StoredWeight
from t2t_keras.exporting.settings import SETTINGS
from t2t_keras.exporting.verify import Verification
from t2t_keras.problem import TextProcessor
from t2t_keras.text.sentence_piece import SentencePieceTokenizer
from t2t_keras.text.tokenizer import WordListTokenizer
from t2t_keras.text.vocabulary import UNK

ROOT = Path(__file__).parents[2]
TEXTS = [
    *LINES,
    "the old dog reads . " * 30,
    "\u2028\x85 \x1c",
    "\u200b",
    "\0\ufeff \u2060",
]
TEXTS += ["the d\u200dog", "\u200ba dog"]
TARGETS = [*TEXTS[1:], "a book"]
PHRASES = {"glossary": {"dog": "Hund"}, "forbidden": tuple("fghij(")}
LIMIT = {"max_source_length": 50}
# The options of the export that most tests share.
BUILT_IN = LIMIT | PHRASES | {"protect": ["symbol"], "split_sentences": True}
OPTIONS = {"beam_size": 6, "n_best": 5, "alpha": 1.0, "min_length": 4}


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vocab")
    return text_translator(folder, "prose", d_model=64, d_ff=256)


@pytest.fixture(scope="module")
def export(translator, tmp_path_factory):
    """The exported model's directory and size."""
    # TensorFlow takes this path for a pattern.
    path = tmp_path_factory.mktemp("export") / "1"
    return path, export_saved_model(translator, path, **BUILT_IN, n_best=3)


@pytest.fixture(scope="module")
def served(export):
    """The exported model as TensorFlow loads it."""
    return load_saved_model(export[0])


@pytest.fixture(scope="module")
def client(export, served):
    """The exported model as Python opens it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(saved_model, "load_saved_model", lambda path: served)
        return t2t_keras.load(export[0])


@pytest.fixture(scope="module")
def ids_export(translator, tmp_path_factory):
    """An export of ids, with rounded weights, and its verification."""
    path = tmp_path_factory.mktemp("export") / "1"
    verify = Verification(LINES)
    options = {"ids_only": True, "quantization": "int8", "n_best": 2}
    export_saved_model(translator, path, **options, verify=verify)
    return path, verify


@pytest.fixture(scope="module")
def signatures(served):
    """The model's signatures in this process."""
    return served.signatures


@pytest.fixture(scope="module")
def ids_signatures(ids_export):
    served = tf.saved_model.load(str(ids_export[0]))
    yield served.signatures


def padded_ids(translator, texts):
    rows = translator.source_tokenizer.encode_batch(texts)
    width = max(map(len, rows))
    return [row + [0] * (width - len(row)) for row in rows]


def assert_same_ids(actual, expected):
    actual = {name: value.numpy() for name, value in actual.items()}
    for row, outputs in enumerate(expected):
        for index, output in enumerate(outputs):
            length = actual["lengths"][row][index]
            assert tuple(actual["ids"][row][index][:length]) == output.ids
            assert actual["scores"][row][index] == pytest.approx(output.score, abs=1e-4)


def test_ids(translator, signatures):
    """The phrases of the export apply to ids as well."""
    ids = tf.constant(padded_ids(translator, LINES[:2]))
    options = PHRASES | {"protect": ["symbol"]}
    actual = signatures["translate_ids"](ids=ids)
    assert_same_ids(actual, translator.n_best(LINES[:2], 3, **options))

    def search(**changes):
        inputs = signatures["options"]()
        changes = {k: tf.constant(v, inputs[k].dtype) for k, v in changes.items()}
        return signatures["search_ids"](ids=ids, **inputs | changes)

    options |= OPTIONS
    assert_same_ids(search(**OPTIONS), translator.n_best(LINES[:2], **options))
    by_row = search(**OPTIONS | {"beam_size": [6, 3], "n_best": [5, 1]})
    outputs, _ = translator.n_best(LINES[:2], **options)
    second = translator.n_best(LINES[1:2], **options | {"beam_size": 3, "n_best": 1})
    assert_same_ids(by_row, [outputs, *second])
    assert by_row["lengths"].numpy()[1, 1:].tolist() == [0] * 4
    score = signatures["score_ids"](ids=ids, targets=ids[::-1])
    scores = translator.score(LINES[:2], LINES[1::-1])
    assert score["tokens"].numpy().tolist() == [x.tokens for x in scores]
    expected = [x.log_prob for x in scores]
    np.testing.assert_allclose(score["log_prob"], expected, rtol=1e-5, atol=1e-4)


def test_blank_texts_in_the_graph(signatures):
    texts = ["", " \u3000", "\u200b", "\0\ufeff \u2060", "a"]
    actual = signatures["serving_default"](texts=tf.constant(texts))
    assert actual["texts"].numpy()[:4].tolist() == [[b""] * 3] * 4
    assert actual["scores"].numpy()[:4, 0].tolist() == [0.0] * 4
    assert actual["texts"].numpy()[4, 0]


def test_client_takes_the_place_of_the_translator(translator, client, caplog):
    plain = translator.translate(TEXTS, **BUILT_IN | {"forbidden": ()})
    assert client.translate(TEXTS) == translator.translate(TEXTS, **BUILT_IN) != plain
    done = []
    options = OPTIONS | {"glossary": {"the": "x y"}, "forbidden": ["e"]}
    options["token_scores"] = True
    results = client.n_best(TEXTS, **options, advance=done.append)
    expected = translator.n_best(TEXTS, **BUILT_IN | options)
    for actual, outputs in zip(results, expected, strict=True):
        assert [x.text for x in actual] == [x.text for x in outputs]
        for ours, output in zip(actual, outputs, strict=True):
            assert ours.score == pytest.approx(output.score, abs=1e-4)
            token_scores = pytest.approx(output.token_log_probs, abs=1e-4)
            assert ours.token_log_probs == token_scores
    assert sum(done) == len(TEXTS)
    scores = translator.score(TEXTS, TARGETS, **LIMIT)
    caplog.clear()
    for ours, translator_score in zip(
        client.score(TEXTS, TARGETS), scores, strict=True
    ):
        assert ours.tokens == translator_score.tokens
        assert ours.log_prob == pytest.approx(
            translator_score.log_prob, rel=1e-5, abs=1e-4
        )
    # The long text is truncated here, and split above; it is also a target.
    long = [texts.index(max(TEXTS, key=len)) + 1 for texts in (TEXTS, TARGETS)]
    assert [message.partition(" has ")[0] for message in messages(caplog)] == [
        f"target {long[1]}",
        f"input {long[0]}",
    ]


SEVERAL = [
    *TEXTS,
    "The old dog. It reads!  a book . Mr. X... left the river",
    "今日は。元気？ the dog\nA book.",
    f"A dog. {TEXTS[len(LINES)]}",
]


@pytest.mark.slow
def test_sentences_are_split_and_truncated(translator, tmp_path, caplog):
    options = LIMIT | {"truncate": True, "split_sentences": True}
    path = tmp_path / "1"
    export_saved_model(translator, path, **options)
    check_split(t2t_keras.load(path), translator, options, caplog)


def test_sentences_are_split_as_in_the_translator(client, translator, caplog):
    check_split(client, translator, BUILT_IN, caplog)


def check_split(client, translator, options, caplog):
    """The client's outputs for several sentences are the translator's."""
    expected = translator.n_best(SEVERAL, 3, **options)
    caplog.clear()
    with caplog.at_level(logging.INFO):
        actual = client.n_best(SEVERAL, 3)
    split_inputs = sum(outputs[0].sentences > 1 for outputs in expected)
    assert split_inputs > 3
    assert messages(caplog)[0].startswith(
        f"{split_inputs} of {len(SEVERAL)} inputs have several"
    )
    for ours, expected_outputs in zip(actual, expected, strict=True):
        assert [x.text for x in ours] == [x.text for x in expected_outputs]
        assert [x.sentences for x in ours] == [x.sentences for x in expected_outputs]
        scores = [x.score for x in expected_outputs]
        np.testing.assert_allclose([x.score for x in ours], scores, atol=1e-4)
        assert ours[0].is_truncated == expected_outputs[0].is_truncated
    plain = translator.translate(SEVERAL, **options | {"split_sentences": False})
    differ = [a != b[0].text for a, b in zip(plain, actual, strict=True)]
    assert sum(differ) >= 3
    for outputs, differs in zip(actual, differ, strict=True):
        assert outputs[0].sentences > 1 or not differs


def test_mistakes_in_calls_of_the_client(client, export, tmp_path, capfd):
    refused("an export has it built in", client.n_best, ["a"], extra_length=2)
    refused("a SavedModel cannot force them", client.translate, ["a"], ["b"])
    refused("is an export, which has only one", t2t_keras.load, export[0], "best")
    flags = ("--input", write(tmp_path / "in", "a"), "--alignments", tmp_path / "x")
    message = run_refused(capfd, "translate", export[0], *flags)
    assert "--alignments needs a run" in message


class Words(WordListTokenizer):
    def split_words(self, text):
        return text.split()

    def word_id(self, word):
        return self.pieces.index(word) if word in self.pieces else UNK


def test_a_vocabulary_that_does_not_keep_all_characters():
    """The graph would look for phrases in a source that has lost words."""
    tokenizer = Words(["<pad>", "</s>", "<unk>", "dog"])
    served = types.SimpleNamespace(signatures={"options": dict})
    arguments = (served, "prose", TextProcessor(), tokenizer, tokenizer)
    engine = SavedModelEngine(*arguments, DecodingOptions())
    engine.check(engine.options)
    for changes in ({"glossary": {"dog": "Hund"}}, {"protect": ["number"]}):
        options = dataclasses.replace(engine.options, **changes)
        engine = SavedModelEngine(*arguments, options)
        refused("does not keep all characters; load the run", engine.check, options)


@pytest.mark.parametrize(
    ("name", "inputs", "message"),
    [
        ("translate", {"beam_size": 0}, "beam_size must be at least 1"),
        ("translate", {"n_best": 5}, "n_best must be at most beam_size"),
        ("translate", {"alpha": float("nan")}, "alpha must be"),
        ("translate", {"alpha": float("inf")}, "alpha must be"),
        ("score", {"targets": ["a", "b"]}, "must be of equal length"),
        ("translate_ids", {"ids": [[5, -1, 1]]}, "ids must be from 0 to"),
        ("translate_ids", {"ids": [[5, 10**6, 1]]}, "ids must be from 0 to"),
        ("translate_ids", {"ids": [[5, 1], [5, 6]]}, "each row of ids must end in 1"),
        ("translate_ids", {"ids": [[5, 0, 1]]}, "may only follow the last token"),
        ("score_ids", {"targets": [[5, 340]]}, "targets must be from 0 to 339"),
        ("score_ids", {"targets": [[0, 5]]}, r"targets 0 \(padding\) may only follow"),
        ("score_ids", {"targets": [[5, 1]] * 2}, "must be of equal length"),
    ],
)
def test_impossible_inputs(name, inputs, message, signatures):
    texts = {"texts": ["a"]}
    possible = {
        "translate": texts
        | {"beam_size": 4, "n_best": 1, "alpha": 0.6, "min_length": 0}
        | {"glossary": [[["", ""]]], "forbidden": [[""]]},
        "score": texts | {"targets": ["b"]},
        "translate_ids": {"ids": [[5, 1, 0], [0, 0, 0]]},
        "score_ids": {"ids": [[5, 1]], "targets": [[5, 0]]},  # without EOS
    }[name]
    tensors = {key: tf.constant(value) for key, value in possible.items()}
    signatures[name](**tensors)
    tensors |= {key: tf.constant(value) for key, value in inputs.items()}
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        signatures[name](**tensors)


def test_ids_without_a_column(signatures):
    actual = signatures["translate_ids"](ids=tf.zeros([2, 0], tf.int32))
    assert actual["lengths"].numpy().tolist() == [[0] * 3] * 2


# The files of an export


def test_settings_and_vocabularies(translator, ids_export):
    path, verify = ids_export
    settings = json.loads((path / SETTINGS).read_text())
    assert (settings["problem"], settings["languages"]) == ("prose", None)
    assert settings["hparams"]["d_model"] == 64
    assert settings["decoding"]["n_best"] == 2
    assert settings["decoding"]["raw"] is False
    assert "temperature" not in settings["decoding"]
    assert settings["ids_only"] and settings["quantization"] == "int8"
    assert settings["verified"] == len(verify.texts)
    assert settings["identical"] == verify.identical > len(verify.texts) / 2
    for side in ("source", "target"):
        loaded = SentencePieceTokenizer(path / f"assets.extra/{side}.spm")
        assert loaded.pieces == translator.source_tokenizer.pieces
    refused("maps ids to ids; call its signatures with", t2t_keras.load, path)


def test_checksums_match_sha256sum(export):
    process = subprocess.run(
        ["sha256sum", "--check", "--strict", SUMS],
        cwd=export[0],
        check=True,
        capture_output=True,
        text=True,
    )
    files = {str(p.relative_to(export[0])) for p in export[0].rglob("*") if p.is_file()}
    checked = {line.split(":")[0] for line in process.stdout.splitlines()}
    assert checked == files - {SUMS}


def flip(file):
    content = bytearray(file.read_bytes())
    for position in (0, len(content) // 3):  # some bits of a graph change nothing
        content[position] ^= 4
    file.write_bytes(content)


def cut(file):
    file.write_bytes(file.read_bytes()[:100])


INDEX = "variables/variables.index"
WEIGHTS = "variables/variables.data-*"


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        *((name, flip) for name in ("saved_model.pb", INDEX, WEIGHTS, SETTINGS)),
        *((SETTINGS, Path.unlink), (SUMS, cut)),
    ],
)
def test_damage_is_one_sentence(name, damage, export, tmp_path, capfd):
    path = shutil.copytree(export[0], tmp_path / "1")
    (file,) = path.glob(name)
    damage(file)
    source = write(tmp_path / "in", "a dog .")
    message = run_refused(capfd, "translate", path, "--input", source)
    assert message.startswith(f"t2t translate: error: {path} is damaged: ")
    assert "export the model again" in message
    assert "does not have its checksum" in message


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "x"),
        tf.errors.ResourceExhaustedError(None, None, "x; No space left on device"),
    ],
    ids=["python", "tensorflow"],
)
def test_a_full_disk_is_one_sentence(error, translator, tmp_path, monkeypatch):
    """The earlier directory stays."""
    monkeypatch.setattr(ServedGraph, "signatures", lambda self: {})
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "saved_model.pb").write_text("earlier")

    def save(module, path, signatures):
        Path(path).mkdir()
        (Path(path) / "saved_model.pb").write_text("half")
        raise error

    monkeypatch.setattr(tf.saved_model, "save", save)
    message = r"cannot write .*1: No space left on device"
    refused(message, export_saved_model, translator, tmp_path / "1", overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["1"]
    assert (tmp_path / "1" / "saved_model.pb").read_text() == "earlier"


def test_nfs_keeps_the_open_lock_file(tmp_path, monkeypatch):
    """It renames a removed file that is open, so the directory cannot be removed."""

    def unlink(path, *, dir_fd=None):
        os.rename(path, ".nfs1", src_dir_fd=dir_fd, dst_dir_fd=dir_fd)

    with monkeypatch.context() as nfs, replaced(tmp_path / "1") as new:
        nfs.setattr("os.unlink", unlink)
        new.mkdir()
    assert [path.name for path in (tmp_path / "1").iterdir()] == ["SHA256SUMS"]


@pytest.mark.slow
def test_what_a_killed_export_left_is_removed(translator, tmp_path):
    target = tmp_path / "ende"
    leftover = tmp_path / ".ende.incomplete"
    (leftover / "new" / "variables").mkdir(parents=True)
    (leftover / "new" / "saved_model.pb").write_text("half")
    with open(leftover / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refused("another process is writing", export_saved_model, translator, target)
    assert [entry.name for entry in tmp_path.iterdir()] == [".ende.incomplete"]
    export_saved_model(translator, target)
    assert [entry.name for entry in tmp_path.iterdir()] == ["ende"]
    assert (target / "saved_model.pb").read_bytes() != b"half"


@pytest.mark.slow
def test_replaces_an_export_and_nothing_else(translator, tmp_path):
    path = tmp_path / "mine"
    path.mkdir()
    (path / "letter.txt").write_text("dear")
    refused("is not an export; name another dir", export_saved_model, translator, path)
    assert (path / "letter.txt").read_text() == "dear"
    refused("has no name; name another directory", require_free, Path("."), True)
    # Checksums alone do not make a folder an export.
    (path / "SHA256SUMS").write_text("0" * 64 + "  letter.txt\n")
    refused("exists and is not an export", require_free, path, True)
    old = tmp_path / "new"
    refused("sampling", export_saved_model, translator, old, sampling=True)

    export_saved_model(translator, old)
    refused("give --overwrite to replace it", export_saved_model, translator, old)
    export_saved_model(translator, old, overwrite=True, beam_size=1)
    assert t2t_keras.load(old).translate(LINES) == translator.translate(
        LINES, beam_size=1
    )


def test_weights_are_stored_once(translator, export):
    path, size = export
    weights = sum(4 * int(np.prod(w.shape)) for w in translator.model.weights)
    stored = sum(file.stat().st_size for file in (path / "variables").iterdir())
    assert weights <= stored < 1.05 * weights + 20_000
    assert size == sum(f.stat().st_size for f in path.rglob("*") if f.is_file())
    assert [entry.name for entry in path.parent.iterdir()] == ["1"]


def graph_of(path):
    content = (path / "saved_model.pb").read_bytes()
    return saved_model_pb2.SavedModel.FromString(content).meta_graphs[0].graph_def


def test_functions_are_stored_once(export):
    """Also those that several signatures call; and no gradients are stored."""
    library = graph_of(export[0]).library
    functions = [definition.signature.name for definition in library.function]
    counts = collections.Counter(
        re.sub(r"^__inference_|_\d+$", "", f) for f in functions
    )
    names = ("_beam_search", "search_ids", "score_ids", "translate", "score", "serve")
    assert [counts[name] for name in names] == [1] * len(names)
    assert not library.gradient
    assert not any("grad" in name for name in functions)
    nodes = itertools.chain(*(definition.node_def for definition in library.function))
    # TensorFlow would warn of functions that name gradients when it loads the export.
    assert not any("_gradient_op_type" in node.attr for node in nodes)


def test_operations_of_tensorflow_text(export, ids_export):
    """docs/exports.md names them; exports of ids have none."""

    def lacking(graph):
        functions = graph.library.function
        types = {node.op for node in graph.node}
        types |= {node.op for function in functions for node in function.node_def}
        types -= {function.signature.name for function in functions}
        return sorted(name for name in types if not hasattr(tf.raw_ops, name))

    assert lacking(graph_of(export[0])) == [
        "SentencepieceDetokenizeOp",
        "SentencepieceOp",
        "SentencepieceTokenizeOp",
    ]
    assert lacking(graph_of(ids_export[0])) == []


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        ("", ["serving_default", "translate"]),
        pytest.param("ids_", ["serving_default", "search_ids"], marks=pytest.mark.slow),
    ],
)
def test_warm_up_requests_can_be_replayed(prefix, expected, request):
    """They are read with the messages of TensorFlow Serving's own package."""
    apis = pytest.importorskip("tensorflow_serving.apis.prediction_log_pb2")
    functions = request.getfixturevalue(f"{prefix}signatures")
    path = request.getfixturevalue(f"{prefix}export")[0]
    seen = []
    for record in tf.data.TFRecordDataset(str(path / WARM_UP)).as_numpy_iterator():
        log = apis.PredictionLog.FromString(record)
        assert log.SerializeToString(deterministic=True) == record  # all is known
        sent = log.predict_log.request
        seen.append(sent.model_spec.signature_name)
        inputs = {
            name: tf.constant(tf.make_ndarray(value))
            for name, value in sent.inputs.items()
        }
        # TensorFlow Serving can batch them: all inputs have the same rows.
        assert len({value.shape[0] for value in inputs.values()}) == 1
        functions[seen[-1]](**inputs)
    assert seen == expected


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_a_program_in_cpp(translator, ids_export, ids_signatures, tmp_path):
    """The program compiles with the commands that its comment gives."""
    source = ROOT / "examples" / "serve.cc"
    library = tf.sysconfig.get_lib()
    comment = re.search(r"(g\+\+ .*?-o) serve$", source.read_text(), re.M | re.S)[1]
    words = comment.replace("\\\n//", " ").replace("$TF", library).split()
    words[words.index("examples/serve.cc")] = str(source)
    program = tmp_path / "serve"
    subprocess.run([*words, program], check=True, capture_output=True)
    for text in LINES[:2]:
        ids = translator.source_tokenizer.encode(text)
        expected = ids_signatures["serving_default"](tf.constant([ids]))
        process = subprocess.run(
            [program, ids_export[0], *map(str, ids)],
            check=True,
            capture_output=True,
            text=True,
        )
        translation, score = process.stdout.splitlines()
        length = expected["lengths"].numpy()[0, 0]
        assert [*map(int, translation.split())] == [
            *expected["ids"].numpy()[0, 0, :length]
        ]
        assert float(score) == pytest.approx(float(expected["scores"][0, 0]), rel=1e-4)


def test_what_ids_cannot_do(translator, tmp_path):
    def only_words(problem, tokenizer):
        return lambda texts, limits: (BannedTokens([5], tokenizer.vocab_size), limits)

    problem = translator.problem.replace(constraint=only_words)
    tokenizers = (translator.source_tokenizer,) * 2
    constrained = ModelTranslator(problem, translator.model, *tokenizers)
    message = "ids_only: constraint, glossary, protect and raw"
    refused(message, export_saved_model, constrained, tmp_path / "x", ids_only=True)
    assert not list(tmp_path.iterdir())


# Rounded weights.


@pytest.mark.parametrize("quantization", export_formats()["savedmodel"].quantizations)
def test_rounding(quantization):
    """Every weight is within half a unit of what is stored; vectors stay exact."""
    model = transformer(340, d_model=32, attention="additive")
    for weight in model.weights:
        array = weight.numpy()
        if weight.name == "table":
            weight.assign(np.where(np.arange(len(array))[:, None] == 7, 0.0, array))
            array = weight.numpy()
        restored = StoredWeight(weight, quantization).restored().numpy()
        if array.ndim < 2:
            np.testing.assert_array_equal(restored, array)
            continue
        if quantization == "int8":
            axis = 1 if weight.name == "table" else 0
            step = np.abs(array).max(axis=axis, keepdims=True) / 127
            assert (np.abs(restored - array) <= 0.501 * step).all()
            peaks = np.abs(restored).max(axis=axis, keepdims=True)
            np.testing.assert_allclose(peaks, 127 * step, rtol=1e-6)
        else:
            digits = {"float16": 11, "bfloat16": 8}[quantization]
            np.testing.assert_allclose(restored, array, rtol=2.0**-digits, atol=1e-7)
        assert (restored != array).any()


def test_rounded_weights_are_stored_in_8_bits(translator, ids_export):
    variables = ids_export[0] / "variables"
    size = sum(file.stat().st_size for file in variables.iterdir())
    shapes = [weight.shape for weight in translator.model.weights]
    expected = sum(np.prod(x) if len(x) > 1 else 4 * np.prod(x) for x in shapes)
    assert expected <= size < 1.3 * expected + 10_000
    stored = tf.train.load_checkpoint(str(variables / "variables"))
    assert tf.int8 in stored.get_variable_to_dtype_map().values()
