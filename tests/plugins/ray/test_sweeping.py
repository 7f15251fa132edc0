"""`t2t sweep --cluster`: trials by Ray Tune, kills, and what is refused."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import psutil
import pytest
from helpers.command_line import run_refused
from helpers.ray_cluster import MAIN, ray_cluster, start, wait_until
from helpers.sweeps import sweep_flags
from helpers.training_process import assert_same_end

TIMEOUT = 300
RANGES = """
from t2t_keras import register_ranged_hparams

@register_ranged_hparams
def ours(rhp):
    '''My own.'''
    rhp.set_float("dropout", 0.0, 0.5)
    rhp.set_float("learning_rate", 0.5, 2.0, scale=rhp.LOG_SCALE)

@register_ranged_hparams
def good_bad_and_impossible(rhp):
    rhp.set_discrete("learning_rate", [1.0, 1e-6, 1e30])
"""


@pytest.fixture
def usr_dir(tmp_path):
    path = tmp_path / "usr"
    path.mkdir()
    (path / "ranges_on_a_cluster.py").write_text(RANGES)
    return path


@pytest.fixture
def cluster():
    """A head and two workers of one core each."""
    pytest.importorskip("optuna", reason="optuna is not installed")
    pytest.importorskip("ray.tune", reason="needs the extra [ray]")
    with ray_cluster(1, 1) as cluster:
        yield cluster


def flags(data_dir, output_dir, usr_dir, **changes):
    ranges = changes.pop("ranges", "ours")
    values = {"trials": 4, "workers": 2, "train_steps": 60, "eval_every": 20}
    return sweep_flags(ranges, data_dir, output_dir, usr_dir, **values | changes)


def trial_processes(directory):
    """Returns the processes that train, by the number of the trial."""
    processes = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            if words and words[-1].startswith(f"{directory}/trial-"):
                processes[int(words[-1][-4:])] = process
    return processes


def last_step(directory, trial):
    files = (directory / f"trial-{trial:04}").glob("model.ckpt-*.index")
    return max((int(file.stem.rpartition("-")[2]) for file in files), default=0)


def saved(directory, trial, step):
    return lambda: last_step(directory, trial) >= step


def ended(process):
    """Returns the result and the messages of a sweep that succeeds."""
    output, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0, errors
    return json.loads(output.splitlines()[-1]), errors


@pytest.mark.slow
def test_a_killed_trial_and_a_killed_driver_change_nothing(
    cluster, data_dir, tmp_path, usr_dir, monkeypatch
):
    monkeypatch.setenv("WANDB_MODE", "offline")  # not when the nodes were started
    directory = tmp_path / "sweep"
    words = flags(data_dir, directory, usr_dir)
    process = start(cluster, "sweep", *words)
    wait_until(saved(directory, 0, 5), process)
    wait_until(lambda: 0 in trial_processes(directory), process)
    killed = trial_processes(directory)[0]
    environ = killed.environ()
    variables = ("WANDB_MODE", "KERAS_BACKEND", "TF_NUM_INTRAOP_THREADS")
    assert [environ[name] for name in variables] == ["offline", "tensorflow", "1"]
    killed.kill()
    killed.wait()
    wait_until(saved(directory, 0, last_step(directory, 0) + 5), process)
    wait_until(saved(directory, 1, 10), process)
    os.kill(process.pid, signal.SIGKILL)
    _, errors = process.communicate()
    assert "trial 0: the process was killed by SIGKILL; it starts again" in errors
    assert "trial 0 resumes from step" in errors
    process = start(cluster, "sweep", *words)
    wait_until(saved(directory, 2, 5), process)
    os.kill(process.pid, signal.SIGTERM)
    _, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 143, errors
    assert "t2t sweep: SIGTERM; run the same command to continue" in errors
    assert not trial_processes(directory)

    result, errors = ended(start(cluster, "sweep", *words, "--json"))
    assert "trial 2 resumes from step" in errors
    assert sorted(trial["trial"] for trial in result["trials"]) == [0, 1, 2, 3]
    assert {trial["state"] for trial in result["trials"]} == {"complete"}
    # On this machine alone, and undisturbed:
    undisturbed_dir = tmp_path / "undisturbed"
    words = flags(data_dir, undisturbed_dir, usr_dir)
    command = [sys.executable, "-c", MAIN, "sweep", *words]
    output = subprocess.run([*command, "--json"], stdout=subprocess.PIPE, check=True)
    undisturbed = json.loads(output.stdout.splitlines()[-1])
    for name in ("trials", "test", "verdict"):
        assert result[name] == undisturbed[name], name
    for index in range(4):
        runs = [path / f"trial-{index:04}" for path in (directory, undisturbed_dir)]
        assert_same_end(*runs, step=60)
    assert (directory / "page.html").read_text().count("<svg") == 4
    assert not (directory / "tune").exists()


@pytest.mark.slow
def test_a_lost_node_costs_no_trial_and_mistakes_are_one_sentence(
    cluster, data_dir, tmp_path, usr_dir
):
    directory = tmp_path / "sweep"

    def refusal(*further_flags, **changes):
        words = flags(data_dir, directory, usr_dir, **changes)
        process = start(cluster, "sweep", *words, *further_flags)
        _, errors = process.communicate(timeout=TIMEOUT)
        assert process.returncode == 2, errors
        return errors.splitlines()[-1]

    assert "room for 0 workers of 1 GPU and 1 core" in refusal("--gpus_per_trial", 1)
    assert "there is no 'ous'; did you mean 'ours'" in refusal(ranges="ous")
    # What refuses the first trial would refuse all.
    sentence = refusal(train_options="precision=no,save_every=5")
    assert "precision" in sentence

    words = flags(data_dir, directory, usr_dir, trials=2, train_steps=400)
    process = start(cluster, "sweep", *words, "--json")
    wait_until(saved(directory, 0, 5), process)
    wait_until(saved(directory, 1, 5), process)
    cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
    result, errors = ended(process)
    assert "resumes from step" in errors
    assert [trial["state"] for trial in result["trials"]] == ["complete"] * 2


@pytest.mark.slow
def test_the_loss_of_all_nodes_ends_the_sweep_and_nodes_continue_it(
    cluster, data_dir, tmp_path, usr_dir
):
    directory = tmp_path / "sweep"
    words = flags(data_dir, directory, usr_dir, trials=2, train_steps=400)
    seconds = 20
    code = f"""
import t2t_keras.plugins.ray.cluster as cluster
cluster._SECONDS_WITHOUT_LIFE = {seconds}
"""
    process = start(cluster, "sweep", *words, code=code)
    wait_until(saved(directory, 0, 5), process)
    wait_until(saved(directory, 1, 5), process)
    for node in list(cluster.worker_nodes):
        cluster.remove_node(node, allow_graceful=False)
    begin = time.monotonic()
    _, errors = process.communicate(timeout=TIMEOUT)
    assert time.monotonic() - begin < seconds + 40
    assert process.returncode == 2, errors
    sentence = f"no trial has run in {seconds} s; add nodes and run the same command"
    assert sentence in errors.splitlines()[-1]
    assert not trial_processes(directory)

    for _ in range(2):
        cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes(timeout=60)  # until Ray knows which are dead
    result, errors = ended(start(cluster, "sweep", *words, "--json"))
    assert errors.count("resumes from step") == 2
    assert [trial["state"] for trial in result["trials"]] == ["complete"] * 2


@pytest.mark.slow
def test_a_trial_waits_for_its_process_on_a_node_that_was_cut_off(
    data_dir, tmp_path, usr_dir, monkeypatch
):
    """A stopped raylet answers as little as one behind a cut network."""
    pytest.importorskip("optuna", reason="optuna is not installed")
    pytest.importorskip("ray.tune", reason="needs the extra [ray]")
    for name in ("initial_delay_ms", "period_ms", "timeout_ms"):
        monkeypatch.setenv(f"RAY_health_check_{name}", "1000")
    directory = tmp_path / "sweep"
    log = directory / "trial-0000" / "process.log"
    words = flags(data_dir, directory, usr_dir, trials=1, train_steps=2000)
    with ray_cluster(1, 1) as cluster:
        process = start(cluster, "sweep", *words, "--json")
        wait_until(saved(directory, 0, 5), process)
        training = trial_processes(directory)[0]
        for node in cluster.worker_nodes:
            raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
            if training in raylet.children(recursive=True):
                raylet.suspend()
                break
        wait_until(lambda: "waiting for its end" in log.read_text(), process)
        assert training.is_running()
        raylet.resume()  # Ray ends it, because the cluster has given it up
        result, errors = ended(process)
    assert "trial 0 resumes from step" in errors
    assert result["best"]["state"] == "complete"


@pytest.mark.slow
def test_trials_that_fail_or_are_behind_do_not_end_the_sweep(
    cluster, data_dir, tmp_path, usr_dir
):
    directory = tmp_path / "sweep"
    changes = {"ranges": "good_bad_and_impossible", "trials": 5, "startup_trials": 1}
    words = flags(data_dir, directory, usr_dir, **changes)
    result, _ = ended(start(cluster, "sweep", *words, "--json"))
    states = {1.0: "complete", 1e-6: "pruned", 1e30: "failed"}
    seen = set()
    for trial in result["trials"]:
        state = trial["state"]
        assert state == states[trial["hparams"]["learning_rate"]], trial
        if state == "pruned":
            assert (trial["step"], trial["error"]) == (20, None)
        if state == "failed":
            assert "the loss or its gradient was not finite" in trial["error"]
        seen.add(state)
    assert seen == set(states.values())
    page = (directory / "page.html").read_text()
    assert "pruned" in page and "the loss or its gradient was not finite" in page


@pytest.mark.slow
def test_asha_spares_the_first_trials_and_knows_those_that_have_ended():
    pytest.importorskip("ray.tune", reason="needs the extra [ray]")
    from ray.tune.schedulers import TrialScheduler

    from t2t_keras.plugins.ray.trial_search import pruning

    def decision(index, score, **changes):
        values = {
            **{"steps": 100, "eval_every": 10, "maximizes": True, "prunes": True},
            **{"startup_trials": 2, "ended_scores": lambda: [{10: 1.0, 20: 5.0}]},
        }
        scheduler = pruning(SimpleNamespace(**values | changes))
        trial = SimpleNamespace(trial_id="t", config={"index": index})
        scheduler.on_trial_add(None, trial)
        return scheduler.on_trial_result(None, trial, {"step": 10, "score": score})

    assert decision(2, 0.5) == TrialScheduler.STOP
    assert decision(2, 1.5) == TrialScheduler.CONTINUE
    assert decision(2, 1.5, maximizes=False) == TrialScheduler.STOP
    assert decision(1, 0.5) == TrialScheduler.CONTINUE
    assert decision(2, 0.5, prunes=False) == TrialScheduler.CONTINUE
    assert decision(2, 0.5, ended_scores=list) == TrialScheduler.CONTINUE


def test_an_address_is_needed_and_other_flags_are_checked(
    capfd, data_dir, tmp_path, usr_dir
):
    pytest.importorskip("optuna", reason="optuna is not installed")
    pytest.importorskip("pandas", reason="needs the extra [ray]")
    pytest.importorskip("ray", reason="needs the extra [ray]")
    words = flags(data_dir, tmp_path / "sweep", usr_dir)
    sentence = run_refused(capfd, "sweep", "--cluster", "here", *words)
    assert "--cluster here is not an address; give HOST:PORT" in sentence
    assert not (tmp_path / "sweep").exists()
