"""For the whole test process: settings, made before TensorFlow does anything; data."""

import gc
import os
import random
import signal

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "true")  # as the program does

import pytest
from xdist.scheduler import LoadFileScheduling

# Tracing makes many objects that stay. They are examined once a file, see
# `frozen_objects`, and not over and over, which would take a twentieth of the time.
gc.set_threshold(50_000, 10, 100)

# Files that take the longest are begun first, so that no process ends long before the
# other one.
LONGEST = (
    *("test_system", "test_cli_run", "test_saved_model", "test_evaluation"),
    *("test_trainer", "test_phrases", "test_ctranslate2_engine", "test_step"),
    *("test_testing", "test_explanation", "test_site", "test_tokenization"),
    *("test_keras", "test_registry_models", "test_step_compiled"),
)

# The tests in these files and folders share the graphs of `translator`, and its export:
# one process traces and loads them.
TRANSLATOR_TESTS = (
    *("tests/decoding/", "tests/plugins/server/", "tests/system/test_adversarial.py"),
    *(
        "tests/exporting/test_saved_model_compiled.py",
        "tests/plugins/ray/test_cluster.py",
    ),
    "tests/plugins/reports/test_attention_page.py",
)

# XLA compiles with little optimization; it reads this before it compiles first.
UNOPTIMIZED_XLA = (
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
    "--xla_cpu_use_fusion_emitters=false"
)


def pytest_configure(config):
    """Prepares the processes that run tests, not one that only distributes them."""
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        # `nohup` ignores it, and tests that send it would wait for what they start.
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        _prepare_tensorflow(is_fast="not slow" in config.option.markexpr)


def _prepare_tensorflow(is_fast):
    """Makes devices; leaves the graphs of fast tests as they are traced.

    These run a few times. TensorFlow would take a sixth of the time of the tests to
    optimize them, and XLA half of the time of its tests to optimize machine code. They
    do in the slow tests.
    """
    import tensorflow as tf

    if is_fast:  # before TensorFlow makes devices
        unoptimized = tf.compat.v1.ConfigProto()
        options = unoptimized.graph_options.optimizer_options
        options.opt_level = options.L0
        tf.compat.v1.enable_eager_execution(unoptimized)
        _record_no_stacks()

    from t2t_keras.cli import command
    from t2t_keras.training.strategy import make_strategy

    # What runs compute is compared exactly; tests of CTranslate2 give `--engine auto`.
    command.DEFAULT_ENGINE = "tensorflow"
    _tune_no_iterators()
    # Up to eight replicas on the CPU; TensorFlow cannot split it later.
    make_strategy(simulate_devices=8)
    if is_fast:
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
        xla_flags = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{xla_flags} {UNOPTIMIZED_XLA}".strip()


def _record_no_stacks():
    """Keeps TensorFlow from storing Python's stack with each operation of a graph.

    The stacks are for messages of errors in a graph, which no test reads. Under pytest
    they have a hundred frames, and take a twentieth of the time of the tests.
    """
    from tensorflow.python.util import tf_stack

    stack = tf_stack.extract_stack()  # XLA needs at least one frame
    tf_stack.extract_stack = lambda stacklevel=1: stack


def _tune_no_iterators():
    """Keeps TensorFlow from tuning the iterators that distribute batches.

    A thread tunes each of them, at intervals of up to a minute, and an iterator that is
    closed waits for it: the tests would wait for a tenth of their time. No option of a
    dataset reaches these iterators.
    """
    from tensorflow.python.data.ops import multi_device_iterator_ops as module

    from t2t_keras.data.pipeline import untuned

    create = module._create_device_dataset
    module._create_device_dataset = lambda *args: untuned(create(*args))


def pytest_collection_modifyitems(items):
    """Moves what takes longest to the front: `TRANSLATOR_TESTS`, then `LONGEST`."""

    def rank(item):
        if item.nodeid.startswith(TRANSLATOR_TESTS):
            return 0
        return 1 if item.path.stem in LONGEST else 2

    items.sort(key=rank)


class FileScheduling(LoadFileScheduling):
    """Gives a process whole files, and one of them all `TRANSLATOR_TESTS`."""

    def _split_scope(self, nodeid):
        file = super()._split_scope(nodeid)
        return "translator" if file.startswith(TRANSLATOR_TESTS) else file


def pytest_xdist_make_scheduler(config, log):
    """Distributes the tests; see `FileScheduling`."""
    return FileScheduling(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Seeds the generator of Keras's initial weights, before fixtures make models.

    A test then has the same weights in every run of its file.
    """
    random.seed(item.nodeid)


@pytest.fixture(scope="module", autouse=True)
def frozen_objects():
    """Keeps the garbage collector from examining what other files have left."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture
def small_scale(monkeypatch):
    """Chunks, shards and saved states of data generation for 300 pairs."""
    from helpers.small_corpus import set_small_scale

    set_small_scale(monkeypatch.setattr)


@pytest.fixture
def registrations():
    """Removes at the end what the test registers and imports from a `--usr_dir`."""
    from helpers.registrations import Registrations

    registrations = Registrations()
    yield registrations
    registrations.restore()


@pytest.fixture(scope="session")
def complete(tmp_path_factory):
    """The data of `small_corpus`, made without any interruption, to be read only."""
    from helpers.small_corpus import PROBLEM, set_small_scale

    from t2t_keras.data.datagen import generate

    path = tmp_path_factory.mktemp("complete")
    with pytest.MonkeyPatch.context() as monkeypatch:
        set_small_scale(monkeypatch.setattr)
        generate(PROBLEM, path, workers=1)
    return path


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory):
    """A data directory of `translate_text`, to be read only."""
    from helpers.small_data import small_data

    directory = tmp_path_factory.mktemp("data")
    small_data(directory)
    return directory


@pytest.fixture(scope="session")
def trained_run(data_dir, tmp_path_factory):
    """A run of four steps, each of them a checkpoint, to be read only."""
    from helpers.small_run import trainer

    directory = tmp_path_factory.mktemp("trained") / "run"
    trainer(data_dir, directory, options={"save_every": 1}).train()
    return directory


@pytest.fixture(scope="session")
def chromium():
    """A browser, started once."""
    from helpers.browser import started

    with started() as browser:
        yield browser


@pytest.fixture(scope="session")
def translator(tmp_path_factory):
    """A translator of texts with random weights, whose graphs are traced once."""
    from helpers.decoding_models import text_translator

    return text_translator(tmp_path_factory.mktemp("vocab"))


@pytest.fixture(scope="session")
def export_dir(translator, tmp_path_factory):
    """An export of it, which splits long texts."""
    from helpers.decoding_models import SHORT

    from t2t_keras.exporting.saved_model import export_saved_model

    path = tmp_path_factory.mktemp("export") / "model" / "7"
    export_saved_model(translator, path, **SHORT)
    return path


@pytest.fixture(scope="session")
def served(export_dir):
    """The signatures of the export."""
    from t2t_keras.exporting.saved_model import load_saved_model

    return load_saved_model(export_dir)


@pytest.fixture(scope="session")
def exported(export_dir, served):
    """The translator of the export, which TensorFlow loads once."""
    import t2t_keras
    from t2t_keras.exporting import saved_model

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(saved_model, "load_saved_model", lambda path: served)
        return t2t_keras.load(export_dir)
