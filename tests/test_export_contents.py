"""What an export holds beside its graph, exports of ids, and rounded weights."""

import importlib.util
import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from decoding_models import LINES, transformer
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tensorflow.core.framework import tensor_pb2

import t2t_keras
from t2t_keras.decoding.constraint import BannedTokens
from t2t_keras.decoding.translator import Translator
from t2t_keras.export import saved_model
from t2t_keras.export.contents import (
    SETTINGS,
    WARM_UP,
    ExportSettings,
    prediction_log,
)
from t2t_keras.export.formats import export_formats, require_free
from t2t_keras.export.quantization import StoredWeight
from t2t_keras.export.saved_model import export_saved_model
from t2t_keras.export.verify import Verification
from t2t_keras.option import UserError
from t2t_keras.problem import Problem
from t2t_keras.text.sentence_piece import SentencePieceTokenizer, train_sentence_piece

ROOT = Path(__file__).parents[1]
TEXTS = LINES[:2]


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocab") / "vocab.spm"
    train_sentence_piece(LINES * 2, path, 340)
    tokenizer = SentencePieceTokenizer(path)
    problem = Problem(
        name="prose", summary="Prose.", sources={"train": list}, extra_length=6
    )
    return Translator(problem, transformer(340, d_model=32), tokenizer, tokenizer)


@pytest.fixture(scope="module")
def export(translator, tmp_path_factory):
    """An export of ids."""
    path = tmp_path_factory.mktemp("export") / "1"
    export_saved_model(
        translator,
        path,
        ids_only=True,
        verify=Verification(TEXTS),
        n_best=2,
        max_source_length=50,
    )
    return path


@pytest.fixture(scope="module")
def served(export):
    return tf.saved_model.load(str(export))


def sources(translator):
    """Ids of the texts, padded."""
    rows = translator.source_tokenizer.encode_batch(TEXTS)
    width = max(map(len, rows))
    return [row + [0] * (width - len(row)) for row in rows]


def test_settings_and_vocabularies(translator, export):
    settings = ExportSettings.load(export)
    assert (settings.problem, settings.languages) == ("prose", None)
    assert settings.hparams["d_model"] == 32
    assert settings.parameters == translator.model.count_params()
    assert settings.decoding["n_best"] == 2
    assert settings.decoding["max_source_length"] == 50
    assert settings.decoding["raw"] is False
    assert "temperature" not in settings.decoding
    assert set(settings.per_request) >= {"beam_size", "n_best", "alpha", "min_length"}
    assert settings.ids_only
    assert settings.quantization is None
    assert settings.verified == settings.identical == len(TEXTS)
    for side in ("source", "target"):
        loaded = SentencePieceTokenizer(export / settings.vocabularies[side])
        assert loaded.pieces == translator.source_tokenizer.pieces
        assert settings.vocab_sizes[side] == 340
    with pytest.raises(UserError, match="maps ids to ids; call its signatures with"):
        t2t_keras.load(export)


def test_damaged_and_absent_settings(export, tmp_path):
    assert ExportSettings.load(tmp_path) is None
    fields = json.loads((export / SETTINGS).read_text())
    (tmp_path / SETTINGS).write_text(json.dumps(fields | {"later": 1}))
    assert ExportSettings.load(tmp_path) == ExportSettings.load(export)
    for text in ("{", "[]", json.dumps({"problem": "prose"})):
        (tmp_path / SETTINGS).write_text(text)
        with pytest.raises(UserError, match=r"t2t_export\.json is not as it was"):
            ExportSettings.load(tmp_path)


@pytest.mark.parametrize("path", [".", "/"])
def test_a_directory_without_a_name_is_refused(path):
    with pytest.raises(UserError, match="has no name; name another directory"):
        require_free(Path(path), overwrite=True)


def messages():
    """TensorFlow Serving's messages, from their definitions in its `.proto` files."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="serving.proto",
        package="tensorflow.serving",
        syntax="proto3",
        dependency=[tensor_pb2.DESCRIPTOR.name],
    )

    def message(holder, name, *fields):
        added = holder.add(name=name)
        for number, (label, kind) in fields:
            repeated = kind.startswith("*")
            kind = kind.lstrip("*")
            added.field.add(
                name=label,
                number=number,
                label=field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL,
                type=field.TYPE_STRING if kind == "string" else field.TYPE_MESSAGE,
                type_name=None if kind == "string" else f".tensorflow.{kind}",
            )
        return added

    message(file.message_type, "ModelSpec", (1, ("name", "string")))
    file.message_type[0].field.add(
        name="signature_name", number=3, label=1, type=field.TYPE_STRING
    )
    request = message(
        file.message_type,
        "PredictRequest",
        (1, ("model_spec", "serving.ModelSpec")),
        (2, ("inputs", "*serving.PredictRequest.InputsEntry")),
    )
    entry = message(
        request.nested_type,
        "InputsEntry",
        (1, ("key", "string")),
        (2, ("value", "TensorProto")),
    )
    entry.options.map_entry = True
    message(file.message_type, "PredictLog", (1, ("request", "serving.PredictRequest")))
    message(
        file.message_type, "PredictionLog", (6, ("predict_log", "serving.PredictLog"))
    )
    # A pool beside the default one, which may have the messages of the real package.
    pool = descriptor_pool.DescriptorPool()

    def add(known):
        for dependency in known.dependencies:
            add(dependency)
        pool.AddSerializedFile(known.serialized_pb)

    add(tensor_pb2.DESCRIPTOR)
    pool.Add(file)
    found = pool.FindMessageTypeByName("tensorflow.serving.PredictionLog")
    return message_factory.GetMessageClass(found)


def test_warm_up_requests_can_be_replayed(export, served):
    kind = messages()
    seen = []
    for record in tf.data.TFRecordDataset(str(export / WARM_UP)).as_numpy_iterator():
        log = kind.FromString(record)
        assert log.SerializeToString(deterministic=True) == record  # nothing unknown
        request = log.predict_log.request
        inputs = {
            name: tf.make_ndarray(
                tensor_pb2.TensorProto.FromString(value.SerializeToString())
            )
            for name, value in request.inputs.items()
        }
        seen.append(request.model_spec.signature_name)
        outputs = served.signatures[seen[-1]](
            **{name: tf.constant(value) for name, value in inputs.items()}
        )
        assert all(len(tensor) == len(TEXTS) for tensor in outputs.values())
    assert seen == ["translate_ids", "search_ids", "score_ids"]


def test_a_long_request_is_encoded_too():
    texts = ["a" * 300] * 200
    log = messages().FromString(prediction_log("x" * 200, {"y": tf.constant(texts)}))
    request = log.predict_log.request
    assert request.model_spec.signature_name == "x" * 200
    assert list(request.inputs["y"].string_val) == [text.encode() for text in texts]


def test_warm_up_requests_are_those_of_the_package(export):
    """With the messages of TensorFlow Serving's own Python package."""
    apis = pytest.importorskip("tensorflow_serving.apis.prediction_log_pb2")
    for record in tf.data.TFRecordDataset(str(export / WARM_UP)).as_numpy_iterator():
        log = apis.PredictionLog.FromString(record)
        assert log.WhichOneof("log_type") == "predict_log"
        assert log.predict_log.request.inputs["ids"].dtype == tf.int32.as_datatype_enum


# Run in a process in which TensorFlow is there and neither TensorFlow Text nor this
# package.
CLIENT = """
import json, sys
sys.modules["tensorflow_text"] = sys.modules["t2t_keras"] = None
import tensorflow as tf
from tensorflow.python.framework import op_def_registry

path, ids = json.load(sys.stdin)
served = tf.saved_model.load(path)
def call(name, **inputs):
    found = served.signatures[name](**{k: tf.constant(v) for k, v in inputs.items()})
    return {name: tensor.numpy().tolist() for name, tensor in found.items()}
options = {k: v.numpy() for k, v in served.signatures["options"]().items()}
options |= {"beam_size": 6, "n_best": 3, "min_length": 4}
print(json.dumps({
    "default": call("serving_default", ids=ids),
    "ids": call("translate_ids", ids=ids),
    "search": call("search_ids", ids=ids, **options),
    "score": call("score_ids", ids=ids, targets=ids[::-1]),
}))
"""


@pytest.mark.slow
def test_ids_with_tensorflow_alone(translator, export):
    ids = sources(translator)
    process = subprocess.run(
        [sys.executable, "-c", CLIENT],
        input=json.dumps([str(export), ids]),
        capture_output=True,
        text=True,
        check=False,
        cwd=export,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
    )
    assert process.returncode == 0, process.stderr
    found = json.loads(process.stdout.splitlines()[-1])
    assert found["default"] == found["ids"]
    for name, options in (
        ("ids", {"n_best": 2}),
        ("search", {"beam_size": 6, "n_best": 3, "min_length": 4}),
    ):
        expected = translator.n_best(TEXTS, **options)
        for row, outputs in enumerate(expected):
            for place, output in enumerate(outputs):
                length = found[name]["lengths"][row][place]
                assert tuple(found[name]["ids"][row][place][:length]) == output.ids
                assert found[name]["scores"][row][place] == pytest.approx(
                    output.score, abs=1e-4
                )
    scores = translator.score(TEXTS, TEXTS[::-1])
    assert found["score"]["tokens"] == [score.tokens for score in scores]
    np.testing.assert_allclose(
        found["score"]["log_prob"], [x.log_prob for x in scores], rtol=1e-5, atol=1e-4
    )


def test_wrong_ids_to_score(served):
    score = served.signatures["score_ids"]
    for ids, targets, message in (
        ([[5, 1]], [[5, 340]], "targets must be from 0 to 339"),
        ([[5, 1]], [[0, 5]], r"targets 0 \(padding\) may only follow"),
        ([[5, 5]], [[5, 1]], "each row of ids must end in 1"),
        ([[5, 1]], [[5, 1], [5, 1]], "ids and targets must be of equal length"),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            score(ids=tf.constant(ids), targets=tf.constant(targets))
    assert score(ids=[[5, 1]], targets=[[5, 0]])["tokens"].numpy() == [1]  # without EOS


@pytest.mark.slow
def test_the_command_line_of_tensorflow(translator, export, tmp_path):
    """`saved_model_cli run` gives the outputs of the run."""
    ids = sources(translator)
    program = [sys.executable, "-m", "tensorflow.python.tools.saved_model_cli", "run"]
    program += ["--dir", export, "--tag_set", "serve", "--outdir", tmp_path]
    program += ["--signature_def", "translate_ids"]
    program += ["--input_exprs", f"ids={ids}"]
    subprocess.run(program, check=True, capture_output=True)
    found = {name: np.load(tmp_path / f"{name}.npy") for name in ("ids", "lengths")}
    for row, (output,) in enumerate(translator.n_best(TEXTS)):
        length = found["lengths"][row, 0]
        assert tuple(found["ids"][row, 0, :length].tolist()) == output.ids


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_a_program_in_cpp(translator, export, tmp_path):
    """The program compiles with the commands that its comment gives."""
    source = ROOT / "examples" / "serve.cc"
    library = tf.sysconfig.get_lib()
    comment = re.search(r"(g\+\+ .*?-o) serve$", source.read_text(), re.M | re.S)[1]
    words = comment.replace("\\\n//", " ").replace("$TF", library).split()
    words[words.index("examples/serve.cc")] = str(source)
    program = tmp_path / "serve"
    subprocess.run([*words, program], check=True, capture_output=True)
    for text, (output,) in zip(TEXTS, translator.n_best(TEXTS), strict=True):
        ids = map(str, translator.source_tokenizer.encode(text))
        process = subprocess.run(
            [program, export, *ids], check=True, capture_output=True, text=True
        )
        found, score = process.stdout.splitlines()
        assert tuple(map(int, found.split())) == output.ids
        assert float(score) == pytest.approx(output.score, rel=1e-4)


def test_what_ids_cannot_do(translator, tmp_path):
    def only_words(problem, tokenizer):
        return lambda texts, limits: (BannedTokens([5], tokenizer.vocab_size), limits)

    problem = translator.problem.replace(constraint=only_words)
    tokenizers = (translator.source_tokenizer,) * 2
    constrained = Translator(problem, translator.model, *tokenizers)
    with pytest.raises(UserError, match="ids_only: constraint needs texts, which an"):
        export_saved_model(constrained, tmp_path / "x", ids_only=True)
    with pytest.raises(UserError, match="format savedmodel has no int16; the choice"):
        export_saved_model(translator, tmp_path / "x", quantization="int16")
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
        found = StoredWeight(weight, quantization).restored().numpy()
        if array.ndim < 2:
            np.testing.assert_array_equal(found, array)
            continue
        if quantization == "int8":
            axis = 1 if weight.name == "table" else 0
            step = np.abs(array).max(axis=axis, keepdims=True) / 127
            assert (np.abs(found - array) <= 0.501 * step).all()
            peaks = np.abs(found).max(axis=axis, keepdims=True)
            np.testing.assert_allclose(peaks, 127 * step, rtol=1e-6)
        else:
            digits = {"float16": 11, "bfloat16": 8}[quantization]
            np.testing.assert_allclose(found, array, rtol=2.0**-digits, atol=1e-7)
        assert (found != array).any()


def rounded_export(translator, path, quantization, **options):
    """Exports ids; returns the verification and the bytes of the weights."""
    verification = Verification(LINES)
    export_saved_model(
        translator,
        path,
        ids_only=True,
        quantization=quantization,
        verify=verification,
        **options,
    )
    variables = (path / "variables").iterdir()
    return verification, sum(file.stat().st_size for file in variables)


@pytest.mark.parametrize(
    ("quantization", "width"),
    [
        ("int8", 1),
        pytest.param("float16", 2, marks=pytest.mark.slow),
        pytest.param("bfloat16", 2, marks=pytest.mark.slow),
    ],
)
def test_an_export_with_rounded_weights(quantization, width, translator, tmp_path):
    verification, size = rounded_export(translator, tmp_path / "1", quantization)
    assert verification.identical > len(verification.texts) / 2
    settings = ExportSettings.load(tmp_path / "1")
    assert settings.quantization == quantization
    assert settings.identical == verification.identical
    shapes = [weight.shape for weight in translator.model.weights]
    exact = sum(4 * np.prod(shape) for shape in shapes if len(shape) < 2)
    matrices = sum(width * np.prod(shape) for shape in shapes if len(shape) > 1)
    assert exact + matrices <= size < 1.3 * (exact + matrices) + 10_000
    stored = tf.train.load_checkpoint(str(tmp_path / "1" / "variables" / "variables"))
    dtypes = stored.get_variable_to_dtype_map().values()
    assert getattr(tf, quantization) in dtypes


@pytest.mark.slow
def test_a_wrong_rounding_is_refused(translator, tmp_path, monkeypatch):
    """Also a small one, with which most outputs are those of the run."""
    right = StoredWeight.restored

    def wrong(self):
        weight = right(self)
        return weight if tf.executing_eagerly() else weight * 1.001

    monkeypatch.setattr(saved_model.StoredWeight, "restored", wrong)
    with pytest.raises(UserError, match=r"^--verify: the export is refused"):
        rounded_export(translator, tmp_path / "1", "int8")
    assert not list(tmp_path.iterdir())


# The examples of requests to TensorFlow Serving.


def example(name):
    """The module of a file in `examples/`."""
    spec = importlib.util.spec_from_file_location(
        name, ROOT / "examples" / f"{name}.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_example_of_grpc():
    pytest.importorskip("tensorflow_serving", reason="needs tensorflow-serving-api")
    grpc = example("serve_grpc")
    request = grpc.request("ende", ["a dog", "naïve"])
    assert request.model_spec.name == "ende"
    texts = tf.make_ndarray(request.inputs["texts"])
    assert [text.decode() for text in texts] == ["a dog", "naïve"]
    answer = grpc.predict_pb2.PredictResponse()
    answer.outputs["texts"].CopyFrom(tf.make_tensor_proto([["ein", "Hund"], ["ü", ""]]))
    scores = np.array([[-0.5, -1.0], [-2.0, -np.inf]], np.float32)
    answer.outputs["scores"].CopyFrom(tf.make_tensor_proto(scores))
    assert grpc.outputs(answer) == [
        [("ein", -0.5), ("Hund", -1.0)],
        [("ü", -2.0), ("", -np.inf)],
    ]


def test_the_example_of_rest(monkeypatch, capsysbinary):
    rest = example("serve_rest")
    request = rest.request("http://host/v1/models/ende", ["a"], beam_size=8)
    assert request.full_url == "http://host/v1/models/ende:predict"
    assert json.loads(request.data) == {
        "signature_name": "translate",
        "inputs": {"texts": ["a"], "beam_size": 8},
    }
    answer = b'{"outputs": {"texts": [["ein", ""]], "scores": [[-0.5, -Infinity]]}}'
    assert rest.outputs(answer) == [[("ein", -0.5), ("", -np.inf)]]

    def upper(request):
        texts = json.loads(request.data)["inputs"]["texts"]
        columns = {
            "texts": [[text.upper()] for text in texts],
            "scores": [[0.0]] * len(texts),
        }
        return io.BytesIO(json.dumps({"outputs": columns}).encode())

    lines = [f"line {i}" for i in range(100)]
    stdin = io.TextIOWrapper(io.BytesIO("\n".join(lines).encode()))
    monkeypatch.setattr(sys, "stdin", stdin)
    monkeypatch.setattr(rest.urllib.request, "urlopen", upper)
    rest.main("http://host/v1/models/ende")
    assert capsysbinary.readouterr().out.decode().split("\n") == [
        *(line.upper() for line in lines),
        "",
    ]
