"""A job that goes back into SLURM's queue saves first, and goes on from there, as with Lightning."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from trainer.runs import Line, trainer

import systolic as L
from systolic.plugins.environments import SLURMEnvironment

SCRIPT = Path(__file__).with_name("requeued.py")
JOB = {"SLURM_NTASKS": "1", "SLURM_JOB_ID": "4711", "SLURM_JOB_NAME": "train", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}


def scontrol(directory: Path, code: int = 0) -> Path:
    """A command that notes how it was called."""
    program = directory / "bin" / "scontrol"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f'#!/bin/sh\necho "$@" >> {directory}/called\necho "Invalid job id" >&2\nexit {code}\n')
    program.chmod(0o755)
    return program.parent


def job(package: str, directory: Path, *ckpt_path: str, code: int = 0, **more: str) -> subprocess.CompletedProcess[str]:
    """A process as SLURM starts it."""
    path = f"{scontrol(directory, code)}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | JOB | {"PATH": path, "PYTHONPATH": os.pathsep.join(sys.path), "JAX_PLATFORMS": "cpu"} | more
    command = [sys.executable, "-W", "ignore::DeprecationWarning", str(SCRIPT), package, str(directory), *ckpt_path]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


def end(directory: Path) -> dict[str, Any]:
    return torch.load(directory / "end.pt", weights_only=True)


def files(directory: Path) -> list[str]:
    return sorted(file.name for file in directory.glob("*.ckpt"))


@pytest.mark.tables
def test_a_job_is_requeued_and_goes_on_as_with_lightning(tmp_path: Path) -> None:
    found: dict[str, Any] = {}
    for package in ("systolic", "lightning.pytorch"):
        directory = tmp_path / package
        first = job(package, directory)
        assert first.returncode == 0, first.stderr
        assert "begins at 0" in first.stdout
        assert (directory / "called").read_text() == "requeue 4711\n"
        found[package, "files"], found[package, "first"] = files(directory), end(directory)
        (directory / "end.pt").unlink()
        again = job(package, directory)
        assert again.returncode == 0, again.stderr
        assert "begins at 5" in again.stdout
        assert "ends at 8" in again.stdout
        found[package, "again"] = end(directory)
    assert found["systolic", "files"] == found["lightning.pytorch", "files"] == ["hpc_ckpt_1.ckpt"]
    torch.testing.assert_close(found["systolic", "first"], found["lightning.pytorch", "first"])
    assert all(torch.equal(value, found["systolic", "again"][name]) for name, value in found["systolic", "first"].items())


@pytest.mark.tables
def test_what_hinders_the_requeueing_is_told(tmp_path: Path) -> None:
    refused = job("systolic", tmp_path, code=1)
    assert refused.returncode == 0, refused.stderr
    assert "`scontrol requeue 4711` ended with exit code 1: Invalid job id" in refused.stderr
    assert files(tmp_path) == ["hpc_ckpt_1.ckpt"]
    (tmp_path / "hpc_ckpt_1.ckpt").unlink()
    strange = job("systolic", tmp_path, SLURM_JOB_ID="47; rm -r /")
    assert "SLURM_JOB_ID is '47; rm -r /', no number" in strange.stderr
    assert files(tmp_path) == ["hpc_ckpt_1.ckpt"]
    assert (tmp_path / "called").read_text() == "requeue 4711\n"


def test_a_damaged_file_is_left_for_the_one_before(tmp_path: Path) -> None:
    module = Line()
    made = trainer(default_root_dir=tmp_path, compile=False, limit_train_batches=1)
    made.fit(module, loader())
    for number in (1, 2, 10):
        made.save_checkpoint(tmp_path / f"hpc_ckpt_{number}.ckpt")
    with (tmp_path / "hpc_ckpt_10.ckpt").open("r+b") as file:
        file.truncate(900)
    again = trainer(default_root_dir=tmp_path, compile=False, max_epochs=2, limit_train_batches=1)
    with pytest.warns(UserWarning, match=r"hpc_ckpt_10\.ckpt is cut off"):
        again.fit(Line(), loader(), ckpt_path="hpc")
    assert again.ckpt_path == str(tmp_path / "hpc_ckpt_2.ckpt")
    assert again.global_step == 2


def loader() -> Any:
    return torch.utils.data.DataLoader([{"x": torch.randn(4), "y": torch.randn(1)} for _ in range(4)], batch_size=2)


def test_no_file_to_go_on_from(tmp_path: Path) -> None:
    with pytest.raises(L.MisconfigurationException, match=r'ckpt_path="hpc".*there is no hpc_ckpt_1\.ckpt .* in'):
        trainer(default_root_dir=tmp_path, compile=False).fit(Line(), loader(), ckpt_path="hpc")


def test_outside_of_such_jobs_files_and_signals_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    class Sees(L.Callback):
        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            seen.append((signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL, signal.getsignal(signal.SIGHUP) is signal.SIG_DFL))

    def fit(**options: Any) -> None:
        trainer(default_root_dir=tmp_path, compile=False, callbacks=[Sees()], **options).fit(Line(), loader())

    fit()
    fit(plugins=[SLURMEnvironment(requeue_signal=signal.SIGHUP)])
    for name, value in JOB.items():
        monkeypatch.setenv(name, value)
    fit()
    fit(plugins=SLURMEnvironment(auto_requeue=False))
    monkeypatch.setenv("SLURM_JOB_NAME", "interactive")
    fit()
    assert seen == [(True, True), (True, False), (False, True), (True, True), (True, True)]
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL


@pytest.mark.parametrize("wrong", [signal.SIGTERM, signal.SIGKILL, "SIGUSR1", 4711])
def test_a_signal_that_is_none(wrong: Any) -> None:
    with pytest.raises(L.MisconfigurationException, match=r"requeue_signal=.*expected a signal"):
        SLURMEnvironment(requeue_signal=wrong)
