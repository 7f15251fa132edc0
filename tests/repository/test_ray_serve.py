"""The example of Ray Serve: two replicas, updates and losses while clients ask."""

import importlib.util
import os
import random
import shutil
import signal

import httpx
import psutil
import pytest
import yaml
from helpers.decoding_models import LINES
from helpers.ray_cluster import ray_cluster
from helpers.ray_serving import EXAMPLE, Application, asking, free_port, wait_until

from t2t_keras import load
from t2t_keras.plugins.server.limits import Limits

CLIENTS = 24
WORDS = [word for line in LINES for word in line.split()]


def test_requests_end_before_their_replica_and_their_proxy_give_up():
    config = yaml.safe_load((EXAMPLE / "config.yaml").read_text("utf-8"))
    (application,) = config["applications"]
    (deployment,) = application["deployments"]
    module, _, function = application["import_path"].partition(":")
    assert f"def {function}(" in (EXAMPLE / f"{module}.py").read_text("utf-8")
    seconds = config["http_options"]["request_timeout_s"]
    assert deployment["graceful_shutdown_timeout_s"] > seconds
    assert seconds > Limits().timeout_seconds


@pytest.fixture(scope="module")
def folder(translator, tmp_path_factory):
    """Two versions of a model, with different outputs."""
    pytest.importorskip("ctranslate2", reason="needs the extra [ctranslate2]")
    from t2t_keras.plugins.engines.ctranslate2_model import export_ctranslate2

    path = tmp_path_factory.mktemp("served") / "ende"
    path.mkdir()
    for version, extra_length in ((1, 5), (2, 3)):
        # With random weights, outputs of a beam search depend on the batch.
        options = {"extra_length": extra_length, "beam_size": 1}
        export_ctranslate2(translator, path / str(version), **options)
    return path


@pytest.fixture(scope="module")
def sentences():
    generator = random.Random(0)
    count = generator.randint
    return [" ".join(generator.choices(WORDS, k=count(1, 12))) for _ in range(300)]


@pytest.fixture(scope="module")
def expected(folder, sentences):
    """For each version what a translator in this process returns."""
    outputs = {}
    for version in (1, 2):
        translations = load(folder / str(version)).translate(sentences)
        outputs[version] = dict(zip(sentences, translations, strict=True))
    return outputs


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """The application of the example's folder, and three nodes of one core each."""
    if not (importlib.util.find_spec("ray") and importlib.util.find_spec("aiohttp")):
        pytest.skip("needs Ray Serve: pip install 'ray[serve]'")
    port = free_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(EXAMPLE))
        with ray_cluster(1, 1, 1, dashboard_port=port) as cluster:
            yield cluster, Application(tmp_path_factory.mktemp("application"), port)


@pytest.fixture
def application(cluster, folder):
    """The application with two replicas of the first version."""
    _, application = cluster
    application.deploy(folder, 1)
    application.wait_without()
    return application


def assert_right(answers, *versions):
    """Asserts that all are answered, and that a version answered each one."""
    for answer in answers:
        assert answer.status == 200, answer
        assert answer.output in [version[answer.sentence] for version in versions]


@pytest.mark.slow
def test_an_update_loses_no_answer_and_makes_none_wrong(
    application, folder, sentences, expected
):
    previous = application.replicas()
    with asking(application.port, sentences, CLIENTS) as answers:
        wait_until(lambda: len(answers) > 200)
        application.deploy(folder, 2)
        before = len(answers)
        application.wait_without(*previous)
        after = len(answers) + CLIENTS
        wait_until(lambda: len(answers) > after + 200)
    assert_right(answers[:before], expected[1])
    assert_right(answers, expected[1], expected[2])
    assert_right(answers[after:], expected[2])
    # The outputs tell the versions apart.
    assert sum(expected[1][x] != expected[2][x] for x in sentences) > 200


@pytest.mark.slow
def test_a_replica_answers_as_t2t_serve_does(application):
    with httpx.Client(base_url=application.url, timeout=60) as client:
        assert client.get("/health").json() == {"status": "ok"}
        status = client.get("/v1/models/ende").json()["model_version_status"]
        assert [(x["version"], x["state"]) for x in status] == [("1", "AVAILABLE")]
        answer = client.post("/v1/models/ende:predict", json={"instances": []})
        assert (answer.status_code, [*answer.json()]) == (400, ["error"])
        assert "<html" in client.get("/").text


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["replica", "node"])
def test_a_lost_replica_answers_500_and_is_replaced(
    cluster, application, sentences, expected, loss
):
    nodes, _ = cluster
    with asking(application.port, sentences, CLIENTS) as answers:
        wait_until(lambda: len(answers) > 200)
        pid = next(iter(application.replicas()))
        if loss == "replica":
            os.kill(pid, signal.SIGKILL)
        else:
            nodes.remove_node(node_of(nodes, pid), allow_graceful=False)
        application.wait_without(pid)
        before = len(answers)
        wait_until(lambda: len(answers) > before + 200)
    lost = [answer for answer in answers if answer.status != 200]
    assert len(lost) <= CLIENTS  # those that the replica had
    assert {answer.status for answer in lost} <= {500}
    assert_right([answer for answer in answers if answer not in lost], expected[1])
    if loss == "node":
        nodes.add_node(num_cpus=1)


def node_of(cluster, pid):
    """Returns the node that has a process."""
    for node in cluster.worker_nodes:
        raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
        if pid in [child.pid for child in raylet.children(recursive=True)]:
            return node
    raise AssertionError(pid)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        ("no checksums", "has no SHA256SUMS; copy or export the model again"),
        (
            "other weights",
            "is damaged: model.bin is missing or does not have its checksum",
        ),
    ],
)
def test_a_damaged_version_replaces_nothing(
    application, folder, sentences, expected, tmp_path, damage, sentence
):
    damaged = tmp_path / "ende" / "2"
    shutil.copytree(folder / "2", damaged)
    if damage == "no checksums":
        (damaged / "SHA256SUMS").unlink()
    else:
        (damaged / "model.bin").write_bytes(b"damaged")
    previous = application.replicas()
    with asking(application.port, sentences, 2) as answers:
        application.deploy(damaged.parent, 2)
        wait_until(lambda: application.status()["status"] == "DEPLOY_FAILED")
    assert_right(answers, expected[1])
    assert sentence in str(application.status())
    for pid in previous:
        os.kill(pid, 0)  # it runs
