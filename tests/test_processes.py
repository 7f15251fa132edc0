"""`t2t train --processes N`: the environments, the signals, and who says what."""

import json
import signal
import subprocess
import sys
import time

import psutil
import pytest
from command_line import run_refused
from training_process import assert_same_end, finish, start

from t2t_keras import UserError
from t2t_keras.cli import processes
from t2t_keras.cli.processes import LOST, Processes, environments
from t2t_keras.training.checkpoint import CheckpointDirectory

TIMEOUT = 60


def make_gpus(monkeypatch, tmp_path, count: int) -> None:
    for number in range(count):
        (tmp_path / f"nvidia{number}").touch()
    (tmp_path / "nvidiactl").touch()
    monkeypatch.setattr(processes, "_NVIDIA", str(tmp_path / "nvidia[0-9]*"))


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, ["0", "1"]),
        ("5, 3,1", ["5", "3"]),
        ("GPU-1a,GPU-2b", ["GPU-1a", "GPU-2b"]),
        ("-1", None),
        ("", None),
    ],
)
def test_each_process_sees_one_of_the_visible_gpus(
    monkeypatch, tmp_path, visible, expected
):
    make_gpus(monkeypatch, tmp_path, 6)
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    found = environments([1234, 1235])
    assert {each["no_grpc_proxy"] for each in found} == {"localhost"}
    if expected is None:
        assert all("CUDA_VISIBLE_DEVICES" not in each for each in found)
    else:
        assert [each["CUDA_VISIBLE_DEVICES"] for each in found] == expected
    workers = ["localhost:1234", "localhost:1235"]
    for index, each in enumerate(found):
        assert json.loads(each["TF_CONFIG"]) == {
            "cluster": {"worker": workers},
            "task": {"type": "worker", "index": index},
        }


TRAIN = ("train", "--problem", "translate_text", "--hparams_set", "tiny")


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--processes", "0"], "argument --processes: must be at least 1, not 0"),
        (["--processes", "3"], "--processes 3: each process takes a GPU, and 2 can be"),
        (
            ["--processes", "2", "--simulate_devices", "2"],
            "--simulate_devices 2 is for one process",
        ),
    ],
)
def test_refusals(monkeypatch, tmp_path, data_dir, capfd, flags, sentence):
    make_gpus(monkeypatch, tmp_path, 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    folders = ("--data_dir", data_dir, "--output_dir", tmp_path / "run")
    assert sentence in run_refused(capfd, *TRAIN, *folders, *flags)
    assert not (tmp_path / "run").exists()


def test_the_launcher_does_not_import_tensorflow(data_dir, tmp_path):
    code = (
        "import sys\n"
        "from t2t_keras.cli import main, processes\n"
        "processes.Processes.run = lambda self: print(self._command) or 0\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit as exit: assert exit.code == 0\n"
        "assert not {'tensorflow', 'keras'} & set(sys.modules)\n"
    )
    flags = ["--data_dir", data_dir, "--output_dir", tmp_path, "--processes", "2"]
    command = [sys.executable, "-c", code, *TRAIN, *map(str, flags)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    # The same command, of which the last flag counts.
    assert "'--processes', '2', '--processes', '1']" in done.stderr


# What the processes do in place of training; each knows its number, I.
CHILD = "import os, signal, sys, time; I = int(os.environ['I']); "


def launch(code: str, count: int = 2) -> int:
    command = [sys.executable, "-c", CHILD + code]
    return Processes(command, [{"I": str(i)} for i in range(count)]).run()


def test_the_output_and_the_status_are_those_of_the_chief(capfd):
    assert launch("print('out', I); print('err', I, file=sys.stderr)") == 0
    assert capfd.readouterr() == ("out 0\n", "err 0\n")
    assert launch("sys.exit('its own message' if I == 0 else 0)") == 1
    assert capfd.readouterr() == ("", "its own message\n")
    assert launch(f"sys.exit({LOST} if I else 2)") == 2  # and process 1 noticed
    assert launch("sys.exit(143)") == 143  # both have saved


AGAIN = "run the same command again, and it resumes from the last checkpoint"


@pytest.mark.parametrize(
    ("code", "ended"),
    [
        (
            "sys.exit('t2t train: error: no space')",
            "ended with exit status 1: no space",
        ),
        ("os.kill(os.getpid(), signal.SIGKILL)", f"was ended by SIGKILL; {AGAIN}"),
        (
            "os.write(2, b'bad allocation'); os.abort()",
            f"was ended by SIGABRT, and its last message was: bad allocation; {AGAIN}",
        ),
    ],
)
def test_one_sentence_tells_which_process_has_failed(capfd, code, ended):
    with pytest.raises(UserError) as error:
        launch(f"I or sys.exit({LOST}); {code}")
    assert str(error.value) == f"process 1 of 2 {ended}"
    assert capfd.readouterr() == ("", "")


def test_a_traceback_is_shown(capfd):
    with pytest.raises(UserError, match="status 1: KeyError: 'absent'"):
        launch(f"I or sys.exit({LOST}); {{}}['absent']")
    assert "Traceback" in capfd.readouterr().err


def test_who_does_not_notice_the_failure_of_another_one_is_killed(monkeypatch):
    before = psutil.Process().children()  # of other tests
    monkeypatch.setattr(processes, "_SECONDS_TO_FOLLOW", 0.1)
    with pytest.raises(UserError, match="process 2 of 3 ended with exit status 4"):
        launch("sys.exit(4) if I == 2 else time.sleep(1000)", count=3)
    with pytest.raises(UserError, match="the 2 processes have lost one another"):
        launch(f"sys.exit({LOST}) if I == 1 else time.sleep(1000)")
    assert set(psutil.Process().children()) <= set(before)


LAUNCHER = (
    "import sys; from t2t_keras.cli import processes; "
    "processes._SECONDS_OF_ONE_REQUEST = float(sys.argv[2]); "
    "command = [sys.executable, '-c', sys.argv[1]]; "
    "sys.exit(processes.Processes(command, [{'I': '0'}, {'I': '1'}]).run())"
)


def started(code: str, seconds_of_one_request: float = 1.0) -> subprocess.Popen:
    """Starts a launcher, and waits until the chief has printed a line."""
    script = f"{CHILD}{code}"
    command = [sys.executable, "-c", LAUNCHER, script, str(seconds_of_one_request)]
    launcher = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert launcher.stdout.readline() == "ready\n"
    return launcher


def is_running(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def await_all(conditions) -> None:
    """Waits until the iterable that the function returns has true elements only."""
    deadline = time.monotonic() + TIMEOUT
    while not all(conditions()):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def await_end(children: list[psutil.Process]) -> None:
    await_all(lambda: (not is_running(child) for child in children))


# Prints a line for every signal, and ends half a second after the first one.
COUNTING = """
count = 0
def on_signal(number, frame):
    global count
    count += 1
    print(signal.Signals(number).name, flush=True)
signal.signal(signal.SIGTERM, on_signal)
signal.signal(signal.SIGINT, on_signal)
READY = os.environ.get('READY', '')
if I: READY and open(READY, 'w').close()
else:
    # The second process has its handlers, too.
    while READY and not os.path.exists(READY): time.sleep(0.01)
print('ready', flush=True)
while not count: time.sleep(0.01)
time.sleep(0.5)
sys.exit(128 + 15)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_passed_on_once(number, tmp_path, monkeypatch):
    monkeypatch.setenv("READY", str(tmp_path / "ready"))
    launcher = started(COUNTING)
    launcher.send_signal(number)
    launcher.send_signal(number)  # at once, as by `timeout`
    output, _ = launcher.communicate(timeout=TIMEOUT)
    assert output == f"{signal.Signals(number).name}\n"
    assert launcher.returncode == 143


STUBBORN = """
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda number, frame: print('asked', flush=True))
print('ready', flush=True)
while True: time.sleep(1)
"""


def test_a_second_signal_ends_all_at_once():
    launcher = started(STUBBORN, seconds_of_one_request=0.0)
    children = psutil.Process(launcher.pid).children()
    launcher.send_signal(signal.SIGINT)
    assert launcher.stdout.readline() == "asked\n"
    launcher.send_signal(signal.SIGINT)
    assert launcher.wait(TIMEOUT) == 130
    await_end(children)


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux'")
def test_the_processes_end_with_a_launcher_that_is_killed():
    launcher = started(STUBBORN)
    children = psutil.Process(launcher.pid).children()
    assert len(children) == 2
    launcher.kill()
    launcher.wait()
    await_end(children)


def start_two(data_dir, output_dir, **flags) -> subprocess.Popen:
    """Starts a training in two processes."""
    # The level is the program's own; the tests have another one.
    env = {"TF_CPP_MIN_LOG_LEVEL": "3"}
    return start(data_dir, output_dir, 0, env=env, processes=2, **flags)


def begun(data_dir, output_dir, step: int, **flags) -> subprocess.Popen:
    """Starts a training in two processes; returns when it has written a checkpoint."""
    launcher = start_two(data_dir, output_dir, **flags)
    checkpoints = CheckpointDirectory(output_dir)
    while max(checkpoints.steps(), default=0) < step:
        assert launcher.poll() is None, launcher.stderr.read()
        time.sleep(0.01)
    return launcher


def process(launcher: subprocess.Popen, index: int) -> psutil.Process:
    for child in psutil.Process(launcher.pid).children():
        if json.loads(child.environ()["TF_CONFIG"])["task"]["index"] == index:
            return child
    raise AssertionError(index)


@pytest.mark.slow
def test_stopped_and_killed_it_goes_on_as_if_never_stopped(data_dir, tmp_path):
    launcher = begun(data_dir, tmp_path / "run", 20, train_steps=100_000)
    children = psutil.Process(launcher.pid).children()
    # To every process, as systemd does, and each has it from the launcher, too.
    for each in (*children, launcher):
        each.send_signal(signal.SIGTERM)
    output, errors = launcher.communicate(timeout=TIMEOUT)
    saved = CheckpointDirectory(tmp_path / "run").steps()[-1]
    assert (launcher.returncode, output) == (143, "")
    assert errors.splitlines()[-1] == f"t2t train: SIGTERM: saved step {saved}"
    assert errors.count("saving after this step") == 1
    await_end(children)

    launcher = begun(data_dir, tmp_path / "run", saved + 10, train_steps=100_000)
    children = psutil.Process(launcher.pid).children()
    launcher.kill()
    launcher.communicate()
    await_end(children)

    steps = CheckpointDirectory(tmp_path / "run").steps()[-1] + 15
    resumed = finish(start_two(data_dir, tmp_path / "run", train_steps=steps))
    assert resumed["step"] == steps
    finish(start(data_dir, tmp_path / "whole", 2, train_steps=steps))
    assert_same_end(tmp_path / "run", tmp_path / "whole", step=steps)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_the_first_step_ends_a_training(data_dir, tmp_path, number):
    """TensorFlow takes SIGTERM when the processes connect, and must not keep it."""
    launcher = start_two(data_dir, tmp_path)
    assert launcher.stderr.readline().startswith("waiting until")
    if number == signal.SIGTERM:
        assert " parameters, 2 replicas" in launcher.stderr.readline()
    children = psutil.Process(launcher.pid).children()
    launcher.send_signal(number)
    _, errors = launcher.communicate(timeout=TIMEOUT)
    assert launcher.returncode == 128 + number
    assert errors == ("t2t train: interrupted\n" if number == signal.SIGINT else "")
    await_end(children)
