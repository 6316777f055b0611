"""`systolic launch`: real processes, started, shown and ended together."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from systolic.cli import main
from systolic.distributed import Pod
from systolic.exceptions import MisconfigurationException

SCRIPT = Path(__file__).with_name("launched.py")


def pod(source: str, processes: int = 3, **options: float) -> tuple[int, list[str]]:
    """Run some Python in processes; the exit code, and what was shown."""
    output = io.StringIO()
    code = Pod([sys.executable, "-c", source], processes, 2, output=output, **options).run()
    return code, output.getvalue().splitlines()


def signal_when_ready(output: io.StringIO, number: signal.Signals) -> None:
    """In a thread: send this process a signal when both of the pod's have said that they are ready."""

    def wait() -> None:
        while output.getvalue().count("ready") < 2:
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    threading.Thread(target=wait).start()


def launch(directory: Path, act: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "systolic", "launch", "--processes", "2", "--devices-per-process", "2", "--"]
    return subprocess.Popen(
        [*command, sys.executable, str(SCRIPT), str(directory), act],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"PYTHONWARNINGS": "ignore"},
    )


def test_every_process_knows_which_one_it_is_and_every_line_whose_it_is() -> None:
    names = ("SYSTOLIC_PROCESS", "SYSTOLIC_PROCESSES", "JAX_NUM_CPU_DEVICES", "JAX_PLATFORMS")
    code, lines = pod(f"import os, sys; print(*[os.environ[n] for n in {names}]); print('old\\rnew', file=sys.stderr)")
    assert code == 0
    assert sorted(lines) == sorted(line for i in range(3) for line in (f"[{i}] {i} 3 2 cpu", f"[{i}] new"))


def test_the_first_failure_ends_all_and_is_told_last() -> None:
    source = "import os, time\nif os.environ['SYSTOLIC_PROCESS'] == '1': raise ValueError('no')\ntime.sleep(600)"
    began = time.monotonic()
    code, lines = pod(source)
    assert time.monotonic() - began < 60  # a limit for hangs
    assert code == 1
    assert lines[-4] == "systolic launch: process 1 ended first, with exit code 1:"
    assert lines[-3] == "Traceback (most recent call last):"
    assert lines[-1] == "ValueError: no"


def test_a_signal_that_ended_a_process_is_named() -> None:
    source = "import os, time\nif os.environ['SYSTOLIC_PROCESS'] == '2': os.kill(os.getpid(), 9)\ntime.sleep(600)"
    code, lines = pod(source)
    assert code == 128 + 9
    assert lines[-1] == "systolic launch: process 2 ended first, with signal 9 (SIGKILL):"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_are_sent_on(number: signal.Signals) -> None:
    source = (
        "import os, signal, sys, time\n"
        f"signal.signal({int(number)}, lambda *_: (print('got it', flush=True), os._exit(7)))\n"
        "print('ready', flush=True)\ntime.sleep(600)"
    )
    output, before = io.StringIO(), [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]

    signal_when_ready(output, number)
    assert Pod([sys.executable, "-c", source], 2, 1, output=output).run() == 7
    assert sorted(output.getvalue().splitlines()[2:]) == ["[0] got it", "[1] got it"]
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == before


def test_processes_that_do_not_end_in_time_are_killed() -> None:
    source = "import signal, time\nsignal.signal(15, signal.SIG_IGN)\nprint('ready', flush=True)\ntime.sleep(600)"
    output = io.StringIO()

    signal_when_ready(output, signal.SIGTERM)
    assert Pod([sys.executable, "-c", source], 2, 1, grace_period=0.5, output=output).run() == 128 + 9


def test_restarts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two attempts fail, the third one does not."""
    source = (
        "import os, pathlib, sys\n"
        "here = pathlib.Path(sys.argv[1], os.environ['SYSTOLIC_PROCESS'])\n"
        "before = here.read_text() if here.exists() else ''\n"
        "here.write_text(before + 'x')\n"
        "sys.exit(3 if len(before) < 2 else 0)"
    )
    words = ["launch", "--processes", "2", "--max-restarts", "{}", "--", sys.executable, "-c", source, str(tmp_path)]
    assert main([word.format("1") for word in words]) == 3
    assert (tmp_path / "0").read_text() == "xx"
    assert main([word.format("1") for word in words]) == 0
    assert "starting again (1 of 1)" in capsys.readouterr().err


def test_commands_that_cannot_be(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["launch", "--processes", "2"]) == 2
    assert "Expected one after `--`" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["launch", "--processes", "0", "--", "true"])
    assert "invalid positive number value: '0'" in capsys.readouterr().err
    with pytest.raises(MisconfigurationException, match="'no-such-program' cannot be started: No such file"):
        Pod(["no-such-program"], 2, 1).run()


# promise 25: X#7974, the others end with the one that fails
@pytest.mark.tables
def test_an_error_in_one_process_ends_the_training_of_all(tmp_path: Path) -> None:
    began = time.monotonic()
    output, _ = launch(tmp_path, "raise").communicate(timeout=300)
    assert time.monotonic() - began < 120  # left to itself JAX waits for five minutes
    lines = output.splitlines()
    assert "[0] systolic: process 1 of this run has failed, and process 0 ends with it. Its own output says more:" in lines
    assert lines[-1] == "RuntimeError: process one has had enough"
    assert not any(line.startswith("[1] ") and "Trainable params" in line for line in lines), "only the first one talks"


@pytest.mark.tables
def test_sigterm_saves_together_and_the_same_command_goes_on(tmp_path: Path) -> None:
    """Of the pod that is ended after some batches, and started again, the weights are those of one that was left alone."""
    for name in ("whole", "ended"):
        (tmp_path / name).mkdir()
    whole, _ = launch(tmp_path / "whole", "none").communicate(timeout=300)
    assert "[0] steps 100" in whole
    assert "[0] Epoch 1/1: 50 batches" in whole
    assert "[1] Epoch" not in whole
    ended = launch(tmp_path / "ended", "slow")
    assert ended.stdout is not None
    with ended.stdout as lines:
        next(line for line in lines if line.startswith("[1] batch 5"))
        ended.send_signal(signal.SIGTERM)
        rest = lines.read()
    assert ended.wait(120) == 143, rest
    assert (tmp_path / "ended/kept/last.ckpt").exists()
    again, _ = launch(tmp_path / "ended", "none").communicate(timeout=300)
    assert "[0] steps 100" in again
    one, other = (torch.load(tmp_path / name / "end.pt", weights_only=True) for name in ("whole", "ended"))
    assert torch.equal(one["layer.weight"], other["layer.weight"])
