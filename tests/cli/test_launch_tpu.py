"""`systolic launch --tpu`: through a `gcloud` that runs on this machine what the hosts of a slice would run."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from systolic.cli import main
from systolic.distributed import TpuSlice, copy_command, run_command, startup_script

GCLOUD = shutil.which("gcloud")
TRAINING = Path(__file__).parents[1] / "distributed" / "launched.py"
SLICE = ["launch", "--tpu", "mine", "--zone", "us-east5-b"]
ENDS_WELL = """
import os, pathlib, signal, sys, time
def end(*_):
    print("saved")
    sys.exit(143)
signal.signal(signal.SIGTERM, end)
pathlib.Path("ready").write_text(str(os.getpid()))
time.sleep(600)
"""
STUBBORN = ENDS_WELL.replace("end)", "signal.SIG_IGN)").replace("def end", "def unused")


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with two hosts, and the stand-in on PATH."""
    program = tmp_path / "bin" / "gcloud"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\n{Path(__file__).with_name('gcloud_here.py').read_text()}")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    here = tmp_path / "hosts"
    for number in "01":
        (here / number).mkdir(parents=True)
    monkeypatch.setenv("GCLOUD_HERE", str(here))
    return here


def calls(hosts: Path) -> list[list[str]]:
    return [["gcloud", *json.loads(line)] for line in (hosts / "calls.jsonl").read_text().splitlines()]


def all_ready(hosts: Path, number: int = 2) -> bool:
    return len(list(hosts.glob("?/ready"))) == number


def signal_when_ready(hosts: Path, *numbers: signal.Signals) -> None:
    """In a thread: send this process signals when the program runs on both hosts."""

    def wait() -> None:
        while not all_ready(hosts):
            time.sleep(0.01)
        for number in numbers:
            os.kill(os.getpid(), number)
            time.sleep(0.3)

    threading.Thread(target=wait).start()


def test_the_arguments_of_ssh_and_scp() -> None:
    tpu = TpuSlice("mine", "us-east5-b", "project", internal_ip=True)
    where = ["--worker=all", "--zone=us-east5-b", "--project=project", "--internal-ip"]
    *ssh, command = run_command(tpu, ["python", "train.py", "--lr", "0.1"], "code", 29.5)
    assert ssh == ["gcloud", "compute", "tpus", "tpu-vm", "ssh", "mine", *where]
    bash, c, script, *rest = shlex.split(command.removeprefix("--command="))
    assert (bash, c, rest) == ("bash", "-c", ["systolic", "code", "30", "python", "train.py", "--lr", "0.1"])
    assert subprocess.run(["bash", "-n", "-c", script]).returncode == 0
    assert "\n" not in command
    scp = copy_command(tpu, Path("/home/me/code"))
    assert scp == ["gcloud", "compute", "tpus", "tpu-vm", "scp", "/home/me/code", "mine:", "--recurse", *where]
    assert run_command(TpuSlice("mine", "z"), ["true"], ".", 1)[5:8] == ["mine", "--worker=all", "--zone=z"]


def test_a_dry_run_prints_what_is_then_run(hosts: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code = tmp_path / "my code"
    code.mkdir()
    (code / "say.py").write_text("import os, sys; print(os.getcwd(), sys.argv[1:])")
    words = [*SLICE, "--project", "p", "--copy", str(code)]
    end = ["--", "say.py", "it's", "$HOME `id`", 'a "b"  c\\', "*", ""]
    assert main([*words, "--dry-run", *end]) == 0
    printed = capfd.readouterr().out
    assert not (hosts / "calls.jsonl").exists()
    assert main([*words, *end]) == 0
    assert [shlex.split(line) for line in printed.splitlines()] == calls(hosts)
    arguments = ["it's", "$HOME `id`", 'a "b"  c\\', "*", ""]
    said = capfd.readouterr().out.splitlines()
    assert sorted(said) == [f"[{number}] {hosts / number / 'my code'} {arguments}" for number in "01"]


def test_lines_and_the_code_of_the_first_host_that_failed(hosts: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source = "import os, sys; print('old\\rnew\\r'); print('wrong', file=sys.stderr); sys.exit(3 * int(os.getcwd()[-1]))"
    assert main([*SLICE, "--", sys.executable, "-c", source]) == 3
    assert sorted(capfd.readouterr().out.splitlines()) == ["[0] new", "[0] wrong", "[1] new", "[1] wrong"]


@pytest.mark.parametrize(("source", "code"), [("exit 255", 1), ("kill -SEGV $$", 128 + 11)])
def test_no_code_makes_gcloud_start_a_program_again(source: str, code: int, hosts: Path) -> None:
    """Of ssh 255 is the code of a host that was not reached, and of a command that a signal has ended."""
    assert main([*SLICE, "--", "sh", "-c", source]) == code


def test_a_program_that_is_not_there(hosts: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([*SLICE, "--", "no-such-program"]) == 127
    assert "[1] " in capfd.readouterr().out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_reach_the_hosts_as_sigterm(number: signal.Signals, hosts: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    signal_when_ready(hosts, number)
    assert main([*SLICE, "--max-restarts", "3", "--", sys.executable, "-c", ENDS_WELL]) == 143
    assert sorted(capfd.readouterr().out.splitlines()) == ["[0] saved", "[1] saved"]
    assert len(calls(hosts)) == 1, "what was interrupted is not started again"
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == before


def test_programs_that_do_not_end_in_time_are_killed(hosts: Path) -> None:
    """On the hosts, and not when the launcher gives up ten seconds later."""
    signal_when_ready(hosts, signal.SIGTERM)
    assert main([*SLICE, "--grace-period", "0.5", "--", sys.executable, "-c", STUBBORN]) == 128 + 9
    for number in "01":
        with pytest.raises(ProcessLookupError):
            os.kill(int((hosts / number / "ready").read_text()), 0)


def test_a_second_ctrl_c_waits_for_nobody(hosts: Path) -> None:
    began = time.monotonic()
    signal_when_ready(hosts, signal.SIGINT, signal.SIGINT)
    words = [*SLICE, "--grace-period", "5", "--", sys.executable, "-c", STUBBORN.replace("600", "20")]
    assert main(words) == 128 + 9
    assert time.monotonic() - began < 5


def test_the_hosts_programs_end_with_the_launcher(hosts: Path) -> None:
    program = ENDS_WELL.replace('print("saved")', 'pathlib.Path("saved").touch()')
    launcher = subprocess.Popen([sys.executable, "-m", "systolic", *SLICE, "--", sys.executable, "-c", program])
    deadline = time.monotonic() + 60
    while not all_ready(hosts) and time.monotonic() < deadline:
        time.sleep(0.05)
    launcher.kill()
    launcher.wait()
    while len(list(hosts.glob("?/saved"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(list(hosts.glob("?/saved"))) == 2


def test_restarts(hosts: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([*SLICE, "--max-restarts", "2", "--", "sh", "-c", "test -e ran || { touch ran; exit 5; }"]) == 0
    assert len(calls(hosts)) == 2
    assert "starting again (1 of 2)" in capfd.readouterr().err


def test_nothing_runs_where_the_code_did_not_arrive(hosts: Path, tmp_path: Path) -> None:
    (hosts / "1" / "full").touch()
    (tmp_path / "code").mkdir()
    assert main([*SLICE, "--copy", str(tmp_path / "code"), "--", "touch", "ran"]) == 1
    assert [call[4] for call in calls(hosts)] == ["scp"]


def test_commands_that_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def refused(*words: str) -> str:
        assert main(["launch", *words]) == 2
        return capsys.readouterr().err

    assert "needs the zone of the slice" in refused("--tpu", "mine", "--", "true")
    assert "There is no command to launch" in refused("--tpu", "mine", "--zone", "z")
    assert "which is none" in refused("--tpu", "mine", "--zone", "z", "--copy", str(tmp_path / "no"), "--", "true")
    assert "a directory with a name" in refused("--tpu", "mine", "--zone", "z", "--copy", "/", "--dry-run", "--", "true")
    assert "drives all of its chips" in refused("--tpu", "a", "--zone", "z", "--devices-per-process", "2", "--", "true")
    assert "one process is started on every host" in refused(
        "--tpu", "a", "--zone", "z", "--processes-per-host", "2", "--", "true"
    )
    assert "--zone, --dry-run belongs to --tpu" in refused("--processes", "2", "--zone", "z", "--dry-run", "--", "true")
    assert "--startup-script FILE" in refused("--tpu", "a", "--zone", "z", "--fetch", "gs://b", "--", "true")
    assert "runs nothing" in refused("--tpu", "a", "--startup-script", str(tmp_path / "s"), "--", "true")
    assert "begins with gs://" in refused("--tpu", "a", "--startup-script", str(tmp_path / "s"), "--fetch", "b")
    (tmp_path / "there").touch()
    assert "File exists" in refused("--tpu", "a", "--startup-script", str(tmp_path / "there"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "gcloud on PATH" in refused("--tpu", "mine", "--zone", "z", "--", "true")
    with pytest.raises(SystemExit):
        main(["launch", "--tpu", "mine", "--processes", "2", "--", "true"])
    assert "not allowed with argument --tpu" in capsys.readouterr().err


def test_the_startup_script_is_written_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "startup.sh"
    words = [
        "launch",
        "--tpu",
        "mine",
        "--install",
        "systolic[tpu] @ git+https://x/y",
        "--install",
        "timm",
        "--fetch",
        "gs://b/c d",
    ]
    assert main([*words, "--startup-script", str(file), "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert not file.exists()
    assert main([*words, "--startup-script", str(file)]) == 0
    assert capsys.readouterr().out == f"For `gcloud compute tpus`: --metadata-from-file=startup-script={file}\n"
    assert file.read_text() == printed
    assert subprocess.run(["bash", "-n", str(file)]).returncode == 0
    assert "--torch-backend cpu 'systolic[tpu] @ git+https://x/y' timm\n" in printed
    assert "gcloud storage rsync --recursive 'gs://b/c d' \"$prefix/data\"\n" in printed


@pytest.mark.parametrize("fails", ["", "uv", "gcloud"])
def test_the_startup_script_says_ready_only_when_all_is_there(fails: str, tmp_path: Path) -> None:
    """As a process, with programs in place of uv and gcloud that note their arguments."""
    prefix = tmp_path / "opt"
    for name in ("uv", "gcloud"):
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\necho "{name} $*" >> {tmp_path}/noted\n{"exit 1" if name == fails else ""}\n')
        program.chmod(0o755)
    script = startup_script(["systolic[tpu]"], "gs://bucket/images", str(prefix))
    environment = os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    prefix.mkdir()
    (prefix / "ready").touch()  # of the boot before
    ended = subprocess.run(["bash"], input=script, env=environment, text=True, capture_output=True)
    assert (ended.returncode == 0, (prefix / "ready").exists()) == (not fails, not fails), ended.stderr
    if not fails:
        assert (tmp_path / "noted").read_text().splitlines() == [
            f"uv venv --seed --python 3.12 {prefix}/venv",
            f"uv pip install --python {prefix}/venv/bin/python --torch-backend cpu systolic[tpu]",
            f"gcloud storage rsync --recursive gs://bucket/images {prefix}/data",
        ]


def train_on(hosts: Path, directory: Path, act: str) -> subprocess.Popen[str]:
    """Start a training on both hosts, which are told where to meet, as they have no TPUs to ask."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        where = f"SYSTOLIC_COORDINATOR=127.0.0.1:{listener.getsockname()[1]}"
    variables = [where, "SYSTOLIC_PROCESSES=2", "JAX_PLATFORMS=cpu", "JAX_NUM_CPU_DEVICES=2", "PYTHONWARNINGS=ignore"]
    script = 'SYSTOLIC_PROCESS=${HOSTNAME##*-w-} exec "$@"'
    return subprocess.Popen(
        [sys.executable, "-m", "systolic", *SLICE, "--", "env", *variables, "sh", "-c", script, "sh",
         sys.executable, str(TRAINING), str(directory), act],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )  # fmt: skip


@pytest.mark.slow
def test_sigterm_saves_on_all_hosts_and_the_same_command_goes_on(hosts: Path, tmp_path: Path) -> None:
    ended = train_on(hosts, tmp_path, "slow")
    assert ended.stdout is not None
    with ended.stdout as lines:
        next(line for line in lines if line.startswith("[1] batch 5"))
        ended.send_signal(signal.SIGTERM)
        rest = lines.read()
    assert ended.wait(120) == 143, rest
    assert (tmp_path / "kept/last.ckpt").exists()
    again, _ = train_on(hosts, tmp_path, "none").communicate(timeout=300)
    assert "[0] steps 100" in again
    assert "[1] steps 100" in again


@pytest.mark.tables
@pytest.mark.skipif(GCLOUD is None, reason="the Google Cloud CLI is not installed")
def test_the_real_gcloud_knows_the_arguments(tmp_path: Path) -> None:
    """Without an account it ends behind its parser; what it does not know it names before."""
    nobody = os.environ | {"CLOUDSDK_CONFIG": str(tmp_path), "CLOUDSDK_CORE_CHECK_GCE_METADATA": "false"}
    tpu = TpuSlice("mine", "us-east5-b", "project", internal_ip=True)
    for command in (copy_command(tpu, tmp_path), run_command(tpu, ["python", "train.py"], "code", 30)):
        ended = subprocess.run(command, env=nobody, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        assert "You do not currently have an active account selected" in ended.stderr
    ended = subprocess.run([*command, "--no-such"], env=nobody, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert "unrecognized arguments: --no-such" in ended.stderr
