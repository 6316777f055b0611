"""What a run needs and loses, for real: workers that are killed, a logger that blocks, a disk that is full under a logger."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader
from trainer.dying_worker import Line, Rows

import systolic as L
import systolic.checkpoint
from systolic.callbacks import ModelCheckpoint
from systolic.exceptions import LoggerBlockedError
from systolic.loggers import CSVLogger, Logger, TensorBoardLogger

QUIET: dict[str, Any] = {
    "accelerator": "cpu", "devices": 1, "enable_progress_bar": False, "enable_model_summary": False, "max_epochs": 4,
    "log_every_n_steps": 1, "advice": False,
}  # fmt: skip


FATES = {
    "killed": "RuntimeError: DataLoader worker.*(killed by signal: Killed|exited unexpectedly)",
    "exits": "RuntimeError: DataLoader worker.*exited unexpectedly",
    "out of memory": "MemoryError: .*no room for row 36",
}


@pytest.mark.parametrize(
    ("fate", "way"),
    [("killed", "compiled"), *(pytest.param(*row, marks=pytest.mark.tables(every=2)) for row in (
        ("killed", "eager"), ("exits", "compiled"), ("exits", "eager"), ("out of memory", "compiled"), ("out of memory", "eager"),
    ))],
)  # fmt: skip
def test_a_worker_that_dies_is_an_error_once(fate: str, way: str, tmp_path: Path) -> None:
    script = Path(__file__).with_name("dying_worker.py")
    environment = {**os.environ, "PYTHONWARNINGS": "ignore", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, str(script), fate, way, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(FATES[fate], done.stdout, re.DOTALL), done.stdout


@pytest.fixture
def silent_server() -> Iterator[int]:
    """The port of a server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


class Remote(Logger):
    """Asks a server to take a row, from the third one on."""

    name, version = "remote", 0

    def __init__(self, port: int) -> None:
        self.port, self.rows, self.ended = port, 0, ""

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None: ...

    def log_metrics(self, metrics: Any, step: int | None = None) -> None:
        self.rows += 1
        if self.rows == 3:
            with socket.create_connection(("127.0.0.1", self.port)) as connection:
                connection.sendall(b"row")
                connection.recv(1)

    def finalize(self, status: str) -> None:
        self.ended = status


@pytest.mark.timeout(120, method="thread")  # by a signal it would use the alarm, which stays its own
@pytest.mark.parametrize("compile", [True, False])
def test_a_logger_that_blocks_is_an_error_once(
    compile: bool, silent_server: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYSTOLIC_LOGGER_TIMEOUT", "0.5")
    logger, keeps = Remote(silent_server), ModelCheckpoint(tmp_path, every_n_train_steps=1, save_last=True)
    trainer = L.Trainer(**QUIET, compile=compile, logger=logger, callbacks=[keeps])
    with pytest.raises(LoggerBlockedError, match="Remote has not taken a row of metrics within 0.5 seconds"):
        trainer.fit(Line(), DataLoader(Rows(), batch_size=4))
    assert (logger.rows, logger.ended) == (3, "failed")
    assert systolic.checkpoint.load(tmp_path / "last.ckpt")["global_step"] == 2
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


@pytest.mark.timeout(120, method="thread")
def test_an_alarm_of_the_users_stays(silent_server: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYSTOLIC_LOGGER_TIMEOUT", "0.1")
    told = threading.Event()

    class Slow(Remote):
        def log_metrics(self, metrics: Any, step: int | None = None) -> None:
            if not self.rows:
                time.sleep(0.5)
            self.rows += 1

    before = signal.signal(signal.SIGALRM, lambda number, frame: told.set())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        logger = Slow(silent_server)
        L.Trainer(**{**QUIET, "max_epochs": 1}, compile=False, logger=logger, enable_checkpointing=False).fit(
            Line(), DataLoader(Rows(), batch_size=4)
        )
        assert logger.rows == 10
        assert told.wait(10)
    finally:
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("text", ["soon", "-1", "inf"])
def test_a_timeout_that_is_none(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYSTOLIC_LOGGER_TIMEOUT", text)
    with pytest.raises(L.MisconfigurationException, match=f"SYSTOLIC_LOGGER_TIMEOUT.*seconds.*Received: '{text}'"):
        L.Trainer(**QUIET, logger=False, compile=False).fit(Line(), DataLoader(Rows(), batch_size=4))


@pytest.mark.skipif(os.getuid() != 0 or shutil.which("mount") is None, reason="only root can mount a small file system")
@pytest.mark.filterwarnings("ignore:Exception in thread:pytest.PytestUnhandledThreadExceptionWarning")  # TensorBoard's own
@pytest.mark.parametrize("kind", [CSVLogger, TensorBoardLogger])
def test_a_full_disk_under_a_logger_is_an_error_once(kind: type[Logger], tmp_path: Path) -> None:
    small, kept = tmp_path / "small", tmp_path / "kept"
    small.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small)], capture_output=True, check=False
    ).returncode:
        pytest.skip("this container cannot mount")

    class Fills(L.Callback):
        def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
            if trainer.global_step == 5:
                free = os.statvfs(small)
                (small / "filler").write_bytes(bytes(free.f_bavail * free.f_frsize))

        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            self.log("long" * 500 + str(trainer.global_step), float(batch_idx))  # each row needs room

    try:
        keeps = ModelCheckpoint(kept, every_n_train_steps=1, save_last=True)
        trainer = L.Trainer(**QUIET, compile=False, logger=kind(small), callbacks=[Fills(), keeps])
        with (
            pytest.warns(UserWarning, match="cannot be written|be ended") as said,
            pytest.raises(OSError, match="No space left on device") as caught,
        ):
            trainer.fit(Line(), DataLoader(Rows(), batch_size=4))
        assert caught.value.__notes__ == [f"{kind.__name__} was given a row of metrics when this happened."]
        texts = [str(warning.message) for warning in said]
        assert all("cannot be written, and the run goes on" in text or "could not be ended" in text for text in texts), texts
        assert 5 <= trainer.global_step < 40
        assert systolic.checkpoint.load(kept / "last.ckpt")["global_step"] >= 5
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)
