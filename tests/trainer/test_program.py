"""The way of a batch: few frames, no compilation after the first step, no value fetched to the host (C1, C3)."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import pytest
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
from trainer.runs import Line, Recorder, batches, trainer

import systolic as L
from systolic.compiler.driver import _program, _step_function
from systolic.runtime import _cells, _convert
from systolic.trainer import _reporting
from systolic.trainer._steps import TrainStep

XLA_COMPILATION = "/jax/core/compile/backend_compile_duration"


def dataset(count: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    return TensorDataset(torch.randn(count, 4, generator=generator), torch.randn(count, 1, generator=generator))


class Regression(L.LightningModule):
    """Linear regression with everything that a run may have: logged values, validation, a scheduler."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = F.mse_loss(self.layer(batch[0]), batch[1])
        self.log("loss", loss, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", F.mse_loss(self.layer(batch[0]), batch[1]))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


@contextmanager
def compilations() -> Iterator[list[str]]:
    """Every program that XLA compiles inside, by whatever part of JAX."""
    found: list[str] = []

    def listener(event: str, duration: float, **details: Any) -> None:
        if event == XLA_COMPILATION:
            found.append(str(details.get("fun_name", "?")))

    jax.monitoring.register_event_duration_secs_listener(listener)
    try:
        yield found
    finally:
        jax.monitoring.unregister_event_duration_listener(listener)


class CountsPerEpoch(L.Callback):
    """How much a list had grown at the end of each epoch, validation included."""

    def __init__(self, counted: list[Any]) -> None:
        self.counted = counted
        self.at_end: list[int] = []

    def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
        self.at_end.append(len(self.counted))


def stacks_of_calls(monkeypatch: pytest.MonkeyPatch) -> list[list[tuple[str, str]]]:
    """The frames above every call of a compiled program in one epoch of eight steps."""
    stacks: list[list[tuple[str, str]]] = []
    made = _program.executable_of

    def watched(*arguments: Any) -> Any:
        compiled = made(*arguments)

        def call(*given: Any) -> Any:
            stacks.append(frames_above())
            return compiled.function(*given)

        call.lower = compiled.function.lower  # type: ignore[attr-defined]
        return _step_function.Executable(call, compiled.checks, None)

    monkeypatch.setattr(_program, "executable_of", watched)
    trainer().fit(Regression(), DataLoader(dataset(64), batch_size=8))
    assert len(stacks) == 8
    return stacks


# promise 2: L#13088
def test_from_the_loop_to_the_program_it_is_four_frames_in_two_files_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    for stack in stacks_of_calls(monkeypatch)[1:]:
        loop = next(i for i, (_, name) in enumerate(stack) if name == "_epoch")
        path = stack[: loop + 1]
        assert len(path) <= 4
        assert len({file for file, _ in path}) <= 2
        assert all("systolic" in file for file, _ in path)


def test_between_fit_and_the_program_it_is_four_frames_in_two_files_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    for stack in stacks_of_calls(monkeypatch)[1:]:
        path = stack[: [name for _, name in stack].index("fit")]
        assert len(path) <= 4
        assert len({file for file, _ in path}) <= 2


def test_the_traced_step_is_a_function_of_one_screen() -> None:
    lines, _ = inspect.getsourcelines(TrainStep._optimize)
    assert len(lines) <= 40


def frames_above() -> list[tuple[str, str]]:
    """File and function of every frame above the caller's, innermost first."""
    found = []
    frame: Any = sys._getframe(2)
    while frame is not None:
        found.append((frame.f_code.co_filename, frame.f_code.co_name))
        frame = frame.f_back
    return found


# promise 4: L#20665
@pytest.mark.parametrize("devices", [1, 8])
def test_only_the_first_epoch_compiles(devices: int) -> None:
    """Epochs with validation, a scheduler that moves every step, values logged by step and epoch."""
    with compilations() as compiled:
        counts = CountsPerEpoch(compiled)
        run = trainer(devices, max_epochs=4, callbacks=[counts], log_every_n_steps=2)
        run.fit(Regression(), DataLoader(dataset(64), batch_size=8 // min(devices, 4)), DataLoader(dataset(24), batch_size=1))
    assert counts.at_end[0] < counts.at_end[1] == counts.at_end[-1]
    assert [entry.reason for entry in run.compiles] == ["first call", "first call"]


def test_steps_after_the_first_compile_nothing() -> None:
    with compilations() as compiled:
        seen: list[int] = []

        class Watch(L.Callback):
            def on_train_batch_end(self, *_: Any) -> None:
                seen.append(len(compiled))

        trainer(callbacks=[Watch()]).fit(Regression(), DataLoader(dataset(64), batch_size=8))
    assert seen[0] > 0
    assert set(seen) == {seen[0]}


def test_a_partial_last_batch_compiles_once_and_not_every_epoch() -> None:
    with compilations() as compiled:
        counts = CountsPerEpoch(compiled)
        run = trainer(max_epochs=4, callbacks=[counts])
        run.fit(Regression(), DataLoader(dataset(20), batch_size=8))
    assert len(run.compiles) == 2
    assert counts.at_end[1] == counts.at_end[-1]


def test_a_second_structure_compiles_once() -> None:
    def loss_of(module: Any, batch: Any) -> torch.Tensor:
        return module.layer(batch["x"]).square().mean()

    data = batches(8, lambda i: {"z": torch.zeros(1)} if i % 2 else {})
    run = trainer(max_epochs=2)
    run.fit(Line(loss_of), data)
    assert len(run.compiles) == 2


def count_reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every fetch of a value from the devices from now on, and whether it waited for a program."""
    reads: list[str] = []
    fetch = _convert.to_host_array

    def counted(array: Any) -> Any:
        reads.append("was there" if array.is_ready() else "waited")
        return fetch(array)

    for module in (_cells, _convert):
        monkeypatch.setattr(module, "to_host_array", counted)
    return reads


class ReadsAtSteps(L.Callback):
    """How many reads there had been after each step."""

    def __init__(self, reads: list[str]) -> None:
        self.reads = reads
        self.after: list[int] = []

    def on_train_batch_end(self, *_: Any) -> None:
        self.after.append(len(self.reads))


# promise 2: L#13088
# promise 3: L#15884
# defect 9: prog_bar waited for the device
def test_steps_fetch_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither scheduler, nor kept outputs, nor logged values make the host wait; `.item()` on a logged loss is free."""

    class Logs(Regression):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            loss = super().training_step(batch, batch_idx)
            self.log("as_number", loss.item() * 2)
            return loss

    reads = count_reads(monkeypatch)
    watch, kept = ReadsAtSteps(reads), Recorder()
    trainer(8, log_every_n_steps=1000, callbacks=[watch, kept]).fit(Logs(), DataLoader(dataset(256), batch_size=1))
    assert len(watch.after) == 32
    assert watch.after[-1] == 0
    assert len(kept.losses) == 32


# promise 5: L#15743
# defect 9: prog_bar waited for the device
def test_refreshing_the_bar_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_reporting, "_BAR_REFRESH_SECONDS", 0.0)
    reads = count_reads(monkeypatch)
    watch = ReadsAtSteps(reads)
    trainer(log_every_n_steps=3, callbacks=[watch]).fit(Regression(), DataLoader(dataset(256), batch_size=8))
    assert reads
    assert "waited" not in reads[: watch.after[-1]]


# promise 3: L#15884
def test_a_hook_that_reads_a_parameter_fetches_it_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    class Reads(L.Callback):
        def on_train_batch_end(self, trainer: Any, module: Any, *_: Any) -> None:
            values.append(module.layer.bias.item())

    values: list[float] = []
    reads = count_reads(monkeypatch)
    watch = ReadsAtSteps(reads)
    trainer(log_every_n_steps=1000, callbacks=[watch, Reads()]).fit(Regression(), DataLoader(dataset(64), batch_size=8))
    assert len(set(values)) == 8
    assert watch.after[-1] - watch.after[0] == 7
