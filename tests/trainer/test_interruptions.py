"""Signals during a run, streams that block, and files that are damaged."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset
from trainer.resuming import LOADERS, Rows, columns, require_equal, run
from trainer.three_ways import QUIET, loader, quiet_trainer, regression

import systolic as L
from systolic.exceptions import SIGTERMException

OPTIONS: dict[str, Any] = {"val_check_interval": 3, "accumulate_grad_batches": 2, "enable_checkpointing": True}


class Signalled(L.Callback):
    """Sends a signal to this process in a hook, and keeps what was called afterwards."""

    def __init__(self, number: int, hook: str, times: int = 1) -> None:
        self.number, self.hook, self.times = number, hook, times
        self.seen: list[Any] = []

    def _send(self, hook: str, trainer: Any) -> None:
        if hook == self.hook and trainer.global_step >= 1:
            for _ in range(self.times):
                os.kill(os.getpid(), self.number)
            self.seen.append("handled")

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self._send("train", trainer)

    def on_validation_batch_start(self, trainer: Any, pl_module: Any, *args: Any) -> None:
        self._send("validation", trainer)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self.seen.append(type(exception).__name__)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self.seen.append("teardown")


@pytest.mark.parametrize("hook", ["train", "validation"])
def test_sigterm_saves_and_ends_with_143(hook: str, tmp_path: Path) -> None:
    def checkpoint(name: str) -> L.callbacks.ModelCheckpoint:
        return L.callbacks.ModelCheckpoint(tmp_path / name)

    signalled = Signalled(signal.SIGTERM, hook)
    whole = run(tmp_path, LOADERS["drawing"](), extra=(checkpoint("whole"),), **OPTIONS)
    with pytest.raises(SIGTERMException) as ended:
        run(tmp_path, LOADERS["drawing"](), extra=(signalled, checkpoint("cut")), **OPTIONS)
    assert ended.value.code == 143
    assert signalled.seen == ["handled", "SIGTERMException", "teardown"]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    resumed = run(tmp_path, LOADERS["drawing"](), "last", (checkpoint("cut"),), **OPTIONS)  # type: ignore[arg-type]
    require_equal(whole, resumed, hook)


STUCK = """
import os, signal, sys, threading, time
import torch, systolic as L
from torch.utils.data import DataLoader, TensorDataset

class Stuck(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
    def training_step(self, batch, batch_idx):
        return self.layer(batch[0]).mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
    def on_train_batch_end(self, *_):
        os.kill(os.getpid(), signal.SIGTERM)
        print("stuck", time.monotonic(), flush=True)
        while True:  # a hook that does not come back
            time.sleep(0.1)

L.Trainer(accelerator="cpu", max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
          enable_model_summary=False, grace_period=2).fit(Stuck(), DataLoader(TensorDataset(torch.ones(4, 1))))
"""


@pytest.mark.tables
def test_a_process_that_cannot_end_by_itself_ends_after_the_grace_period(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", STUCK], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        began = next(float(line.split()[1]) for line in process.stdout if line.startswith("stuck"))
        assert process.wait(120) == 143
        assert time.monotonic() - began >= 2


def test_a_run_leaves_no_thread_that_waits_for_a_signal() -> None:
    quiet_trainer(max_epochs=1).fit(regression(L.LightningModule)(), loader(4))
    assert not [thread for thread in threading.enumerate() if thread.name == "systolic-grace"]


@pytest.fixture
def listening() -> Iterator[None]:
    """Ctrl-C as in a terminal: processes that a shell starts in the background ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("listening")
def test_ctrl_c_once_waits_for_the_step_and_twice_does_not() -> None:
    for times, handled in ((1, ["handled"]), (2, [])):
        signalled, rows = Signalled(signal.SIGINT, "train", times), Rows()
        trainer = quiet_trainer(compile=False, callbacks=[signalled], logger=rows, advice=False)
        with pytest.raises(SystemExit, match="1"):
            trainer.fit(regression(L.LightningModule)(), LOADERS["table"]())
        assert signalled.seen == [*handled, "KeyboardInterrupt", "teardown"]
        assert trainer.state.status == "interrupted"


class Blocks(IterableDataset[Any]):
    """Blocks after so many samples, until it is let go."""

    def __init__(self, after: int) -> None:
        self.after, self.released = after, threading.Event()

    def __iter__(self) -> Any:
        for index in range(1000):
            if index == self.after:
                self.released.wait(60)
            yield columns()[0][index % 8], columns()[1][index % 8]


@pytest.mark.usefixtures("listening")
@pytest.mark.parametrize("compile", [True, False])
def test_ctrl_c_ends_the_wait_for_data(compile: bool) -> None:
    stream = Blocks(8)
    trainer = quiet_trainer(compile=compile, advice=False)
    sent: list[float] = []

    def press() -> None:
        while trainer.global_step < 1 and not trainer.state.finished:
            time.sleep(0.01)
        time.sleep(0.3)
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    presses = threading.Thread(target=press)
    presses.start()
    with pytest.raises(SystemExit, match="1"):
        trainer.fit(regression(L.LightningModule)(), DataLoader(stream, batch_size=4))
    assert time.monotonic() - sent[0] < 2
    stream.released.set()
    presses.join()


@pytest.mark.usefixtures("listening")
def test_ctrl_c_ends_a_prediction_before_its_next_batch() -> None:
    predicted: list[int] = []

    def predict_step(self: Any, batch: Any, batch_idx: int) -> torch.Tensor:
        predicted.append(batch_idx)
        os.kill(os.getpid(), signal.SIGINT)
        return self.first(batch[0])

    trainer = quiet_trainer(compile=False)
    with pytest.raises(SystemExit, match="1"):
        trainer.predict(regression(L.LightningModule, predict_step=predict_step)(), loader())
    assert predicted == [0]


def test_a_stream_that_blocks_after_the_last_batch_does_not_keep_fit() -> None:
    stream = Blocks(14)
    trainer = quiet_trainer(max_steps=2, max_epochs=-1, advice=False)
    began = time.monotonic()
    trainer.fit(regression(L.LightningModule)(), DataLoader(stream, batch_size=4))
    assert trainer.global_step == 2
    assert time.monotonic() - began < 50
    stream.released.set()


@pytest.mark.parametrize("damage", ["cut", "bit"])
def test_a_damaged_file_is_told_by_its_checksum(damage: str, tmp_path: Path) -> None:
    def checkpoint() -> L.callbacks.ModelCheckpoint:
        return L.callbacks.ModelCheckpoint(tmp_path / "kept", every_n_train_steps=1, save_top_k=-1, save_last=True)

    run(tmp_path, LOADERS["table"](), extra=(checkpoint(),), **OPTIONS)
    last = tmp_path / "kept/last.ckpt"
    content = bytearray(last.read_bytes())
    if damage == "cut":
        del content[len(content) // 2 :]
    else:
        weights = torch.load(last, weights_only=True)["state_dict"]["first.weight"].numpy().tobytes()
        content[content.index(weights) + 5] ^= 1
    last.write_bytes(content)
    with pytest.raises(L.MisconfigurationException, match=r"last\.ckpt.*(checksum does not fit|cut off)"):
        run(tmp_path, LOADERS["table"](), last, (checkpoint(),), **OPTIONS)
    with pytest.warns(UserWarning, match=r"last\.ckpt cannot be read.*from the one before, .*step=8\.ckpt"):
        run(tmp_path, LOADERS["table"](), "last", (checkpoint(),), **OPTIONS)  # type: ignore[arg-type]


class Command:
    """A pickle that runs a command."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.path}",)


def test_a_checkpoint_cannot_run_code(tmp_path: Path) -> None:
    torch.save({"state_dict": {}, "x": Command(tmp_path / "ran")}, tmp_path / "bad.ckpt")
    with pytest.raises(L.MisconfigurationException, match=r"(?s)bad\.ckpt.*system.*weights_only=False"):
        quiet_trainer(compile=False).fit(regression(L.LightningModule)(), LOADERS["table"](), ckpt_path=tmp_path / "bad.ckpt")
    assert not (tmp_path / "ran").exists()


@pytest.mark.filterwarnings("ignore:SIGTERM. there is no ModelCheckpoint", "ignore::FutureWarning")
def test_a_handler_of_the_users_is_called_as_well(tmp_path: Path) -> None:
    calls: list[int] = []

    def handler(number: int, frame: Any) -> None:
        calls.append(number)

    before = signal.signal(signal.SIGTERM, handler)
    try:
        for package in ("systolic", "lightning"):
            found: Any = L if package == "systolic" else pytest.importorskip("lightning.pytorch")
            trainer = found.Trainer(accelerator="cpu", devices=1, max_epochs=1, default_root_dir=tmp_path, **QUIET)
            error = SIGTERMException if package == "systolic" else found.utilities.exceptions.SIGTERMException
            ends = {"on_train_batch_start": lambda self, batch, batch_idx: os.kill(os.getpid(), signal.SIGTERM)}
            with pytest.raises(error):
                trainer.fit(regression(found.LightningModule, **ends)(), loader())
            assert calls == [signal.SIGTERM], package
            assert trainer.received_sigterm
            assert signal.getsignal(signal.SIGTERM) is handler
            calls.clear()
    finally:
        signal.signal(signal.SIGTERM, before)
