"""`t2t launch`: environments, signals, output and error messages."""

import json
import os
import signal
import subprocess
import sys

import psutil
import pytest
from helpers.command_line import python, run_refused
from helpers.errors import refused
from helpers.training_process import assert_same_end, finish, start
from helpers.waiting import wait_until

from t2t_keras import devices
from t2t_keras.plugins import launch as launch_plugin
from t2t_keras.plugins.launch import Processes, environments
from t2t_keras.processes import LOST
from t2t_keras.run.checkpoint import CheckpointDirectory

TIMEOUT = 60


@pytest.fixture
def gpus(monkeypatch, tmp_path):
    """Makes a machine of six GPUs."""
    for name in ("nvidiactl", *(f"nvidia{index}" for index in range(6))):
        (tmp_path / name).touch()
    monkeypatch.setattr(devices, "_NVIDIA", str(tmp_path / "nvidia[0-9]*"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, ["0", "1"]),
        ("5, 3,1", ["5", "3"]),
        ("GPU-1a,GPU-2b", ["GPU-1a", "GPU-2b"]),
        ("-1", [None, None]),
        ("", [None, None]),
    ],
)
def test_each_process_sees_one_of_the_visible_gpus(
    gpus, monkeypatch, visible, expected
):
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    processes = environments([1234, 1235])
    assert {environment["no_grpc_proxy"] for environment in processes} == {"localhost"}
    assert [
        environment.get("CUDA_VISIBLE_DEVICES") for environment in processes
    ] == expected
    for index, environment in enumerate(processes):
        assert json.loads(environment["TF_CONFIG"]) == {
            "cluster": {"worker": ["localhost:1234", "localhost:1235"]},
            "task": {"type": "worker", "index": index},
        }


@pytest.mark.parametrize(
    ("words", "config", "sentence"),
    [
        (["0", "train"], "", "--processes must be at least 1"),
        (["7", "train"], "", "--processes 7: each process takes a GPU, and 6 are"),
        (["2", "train"], "{}", "is for one machine, and the environment variable TF_"),
        (["2", "translate"], "", "only `train` runs in several processes; write `t2t"),
        (["2"], "", "only `train` runs in several processes; write `t2t launch"),
    ],
)
def test_refusals(gpus, monkeypatch, capfd, words, config, sentence):
    monkeypatch.setenv("TF_CONFIG", config)
    assert sentence in run_refused(capfd, "launch", "--processes", *words)


def test_each_process_has_the_command_and_the_users_environment():
    """The launcher does not import TensorFlow, which would set variables."""
    code = """
import os, sys
from t2t_keras.cli import main
from t2t_keras.plugins import launch as launching
user = dict(os.environ)
class Processes:
    def __init__(self, command, environments):
        assert command[-3:] == ["train", "--problem=x", "--json"]
        own = {"TF_CONFIG", "T2T_LAUNCHED", "no_grpc_proxy", "CUDA_VISIBLE_DEVICES"}
        assert len(environments) == 2
        for each in environments:
            assert {**each, **user} == each and each.keys() - user.keys() <= own
    def run(self):
        return 5
launching.Processes = Processes
try:
    main(sys.argv[1:])
except SystemExit as exit:
    assert exit.code == 5
assert not {"tensorflow", "keras"} & sys.modules.keys()
"""
    python(code, "launch", "--json", "--processes", "2", "train", "--problem=x")


# What the processes do in place of training; each knows its number, I.
CHILD = "import os, signal, sys, time; I = int(os.environ['I']); "


def launch(code: str, count: int = 2) -> int:
    command = [sys.executable, "-c", CHILD + code]
    return Processes(command, [os.environ | {"I": str(i)} for i in range(count)]).run()


def test_the_output_and_the_status_match_the_chief(capfd):
    assert launch("print('out', I); print('err', I, file=sys.stderr)") == 0
    assert capfd.readouterr() == ("out 0\n", "err 0\n")
    assert launch("sys.exit('its own message' if I == 0 else 0)") == 1
    assert capfd.readouterr() == ("", "its own message\n")
    assert launch(f"sys.exit({LOST} if I else 2)") == 2  # and process 1 noticed
    assert launch("sys.exit(143)") == 143  # both have saved


AGAIN = "run the same command again, and it resumes from the last checkpoint"


@pytest.mark.parametrize(
    ("code", "ended", "shown"),
    [
        (
            "sys.exit('t2t train: error: no space')",
            "ended with exit status 1: no space",
            "",
        ),
        ("os.kill(os.getpid(), signal.SIGKILL)", f"was killed by SIGKILL; {AGAIN}", ""),
        (
            "os.write(2, b'bad allocation'); os.abort()",
            f"was killed by SIGABRT, and its last message was: bad allocation; {AGAIN}",
            "",
        ),
        ("{}['absent']", "ended with exit status 1: KeyError: 'absent'", "Traceback"),
    ],
)
def test_one_sentence_names_the_process_that_failed(capfd, code, ended, shown):
    message = refused("", launch, f"I or sys.exit({LOST}); {code}")
    assert message == f"process 1 of 2 {ended}"
    assert capfd.readouterr().err.partition(" ")[0] == shown


def test_only_the_last_lines_of_a_process_are_kept(capfd):
    """Numbered lines show that the last ones are kept, and are complete."""
    code = (
        "sys.stderr.write(''.join(f'line {i}\\n' for i in range(20_000))); sys.exit(1)"
    )
    message = refused("", launch, f"I or sys.exit({LOST}); {code}")
    assert message == "process 1 of 2 ended with exit status 1: line 19999"
    notice, *lines = capfd.readouterr().err.splitlines()
    assert notice == "... (earlier lines are left out)"
    assert lines == [f"line {i}" for i in range(19_999 - len(lines), 19_999)]
    assert 60_000 < sum(len(line) + 1 for line in lines) < 1 << 16


def test_a_process_that_ignores_the_failure_of_another_is_killed(monkeypatch):
    initial_children = psutil.Process().children()  # of other tests
    monkeypatch.setattr(launch_plugin, "_SECONDS_TO_FOLLOW", 0.1)
    program = "sys.exit(4) if I == 2 else time.sleep(1000)"
    refused("process 2 of 3 ended with exit status 4", launch, program, count=3)
    program = f"sys.exit({LOST}) if I == 1 else time.sleep(1000)"
    refused("the 2 processes have lost contact", launch, program)
    assert set(psutil.Process().children()) <= set(initial_children)


LAUNCHER = """
import os, sys
from t2t_keras.plugins import launch as launching
launching._SECONDS_OF_ONE_REQUEST = float(sys.argv[2])
command = [sys.executable, "-c", sys.argv[1]]
environments = [os.environ | {"I": i} for i in "01"]
sys.exit(launching.Processes(command, environments).run())
"""
# Prints a line for every signal, and ends half a second after the first one, or never.
CHILD_WITH_HANDLERS = """
count = 0
def on_signal(number, frame):
    global count
    count += 1
    print(signal.Signals(number).name, flush=True)
signal.signal(signal.SIGTERM, on_signal)
signal.signal(signal.SIGINT, on_signal)
if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
    signal.signal(signal.SIGHUP, on_signal)
print("ready", flush=True)
while not count or %r: time.sleep(0.01)
time.sleep(0.5)
sys.exit(143)
"""


def started(
    is_stubborn: bool, seconds_of_one_request: float = 1.0
) -> tuple[subprocess.Popen, list[psutil.Process]]:
    """Starts a launcher, and waits until the chief is ready; returns its processes."""
    script = CHILD + CHILD_WITH_HANDLERS % is_stubborn
    command = [sys.executable, "-c", LAUNCHER, script, str(seconds_of_one_request)]
    launcher = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert launcher.stdout.readline() == "ready\n"
    children = psutil.Process(launcher.pid).children()
    assert len(children) == 2
    return launcher, children


def await_end(children: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(children, TIMEOUT)
    assert not alive


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_a_signal_is_passed_on_once(name):
    launcher, _ = started(is_stubborn=False)
    launcher.send_signal(signal.Signals[name])
    launcher.send_signal(signal.Signals[name])  # at once, as by `timeout`
    output, _ = launcher.communicate(timeout=TIMEOUT)
    assert (output, launcher.returncode) == (f"{name}\n", 143)


def test_a_second_signal_ends_all_at_once():
    launcher, children = started(is_stubborn=True, seconds_of_one_request=0.0)
    launcher.send_signal(signal.SIGINT)
    assert launcher.stdout.readline() == "SIGINT\n"
    launcher.send_signal(signal.SIGINT)
    assert launcher.wait(TIMEOUT) == 130
    await_end(children)


def test_a_second_hangup_ends_nothing():
    launcher, children = started(is_stubborn=False, seconds_of_one_request=0.0)
    launcher.send_signal(signal.SIGHUP)
    assert launcher.stdout.readline() == "SIGHUP\n"
    launcher.send_signal(signal.SIGHUP)
    assert launcher.wait(TIMEOUT) == 143  # the chief's own, half a second later
    await_end(children)


def test_nohup_of_a_launcher_is_for_its_processes():
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        launcher, children = started(is_stubborn=False)
    finally:
        signal.signal(signal.SIGHUP, previous)
    for process in (launcher, *children):
        process.send_signal(signal.SIGHUP)
    launcher.send_signal(signal.SIGTERM)
    output, _ = launcher.communicate(timeout=TIMEOUT)
    assert (output, launcher.returncode) == ("SIGTERM\n", 143)


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux'")
def test_the_processes_end_with_a_launcher_that_is_killed():
    launcher, children = started(is_stubborn=True)
    launcher.kill()
    launcher.wait()
    await_end(children)


def start_two(data_dir, output_dir, **flags):
    """Starts a training in two processes of this machine."""
    # The level is the program's own; the tests have another one.
    env = {"TF_CPP_MIN_LOG_LEVEL": "3"}
    launch = ("launch", "--processes", "2")
    return start(data_dir, output_dir, 0, env, launch, **flags)


def begun(data_dir, output_dir, step: int) -> tuple:
    """Starts two processes; returns when they have written the step's checkpoint."""
    launcher = start_two(data_dir, output_dir, train_steps=100_000)
    checkpoints = CheckpointDirectory(output_dir)
    wait_until(lambda: max(checkpoints.steps(), default=0) >= step, launcher)
    return launcher, psutil.Process(launcher.pid).children()


@pytest.mark.slow
def test_stopped_and_killed_it_ends_as_if_never_stopped(data_dir, tmp_path):
    checkpoints = CheckpointDirectory(tmp_path / "run")
    launcher, children = begun(data_dir, tmp_path / "run", 20)
    # To every process, as systemd does, and each has it from the launcher as well.
    for process in (*children, launcher):
        process.send_signal(signal.SIGTERM)
    output, errors = launcher.communicate(timeout=TIMEOUT)
    saved = checkpoints.steps()[-1]
    assert (launcher.returncode, output) == (143, "")
    assert (
        errors.splitlines()[-1]
        == f"t2t train: SIGTERM: saved step {saved}; the same command continues"
    )
    assert errors.count("saving after this step") == 1
    await_end(children)

    launcher, children = begun(data_dir, tmp_path / "run", saved + 10)
    launcher.kill()
    launcher.communicate()
    await_end(children)

    steps = checkpoints.steps()[-1] + 15
    resumed = finish(start_two(data_dir, tmp_path / "run", train_steps=steps))
    assert resumed["step"] == steps
    finish(start(data_dir, tmp_path / "whole", 2, train_steps=steps))
    assert_same_end(tmp_path / "run", tmp_path / "whole", step=steps)


@pytest.mark.slow
@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_the_first_step_ends_a_training(
    data_dir, tmp_path, signal_number
):
    """TensorFlow takes SIGTERM when the processes connect, and must not keep it.

    SIGINT may come before that, or during it.
    """
    launcher = start_two(data_dir, tmp_path)
    assert launcher.stderr.readline().startswith("waiting until")
    if signal_number == signal.SIGTERM:
        assert " parameters, 2 replicas" in launcher.stderr.readline()
    children = psutil.Process(launcher.pid).children()
    launcher.send_signal(signal_number)
    _, errors = launcher.communicate(timeout=TIMEOUT)
    assert launcher.returncode == 128 + signal_number
    if signal_number == signal.SIGTERM or errors:
        is_interrupted = errors.startswith("t2t train: interrupted")
        assert is_interrupted == (signal_number == signal.SIGINT)
    await_end(children)


@pytest.mark.slow
def test_simulated_devices_are_refused_by_each_process(data_dir, tmp_path):
    launcher = start_two(data_dir, tmp_path, simulate_devices=2)
    _, errors = launcher.communicate(timeout=TIMEOUT)
    assert launcher.returncode == 2 and errors.count("\n") == 1
    assert "--simulate_devices 2 is for one process, and this training has 2" in errors
