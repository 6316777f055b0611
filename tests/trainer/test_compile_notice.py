"""The progress bar tells of tracing and of compiling, and of nothing when a step finds its program."""

from __future__ import annotations

import io
import re
import time
from typing import Any

import pytest
import torch
from trainer.runs import SILENT, Line, batches

import systolic as L
from systolic.callbacks import ProgressBar, RichProgressBar
from systolic.callbacks.progress import _displays

OPTIONS = {**SILENT, "devices": 1, "max_epochs": 2}
del OPTIONS["enable_progress_bar"]


class Slow(Line):
    """Takes a while to trace, as large models do."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.__dict__["seconds"] = seconds

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        time.sleep(self.__dict__["seconds"])
        return super().training_step(batch, batch_idx)


class Notes(ProgressBar):
    def __init__(self) -> None:
        super().__init__()
        self.notes: list[Any] = []

    def on_trace_start(self, trainer: Any, description: str) -> None:
        self.notes.append(f"trace {description}")

    def on_compile_start(self, trainer: Any, description: str) -> None:
        self.notes.append(f"compile {description}")

    def on_compile_end(self, trainer: Any, seconds: float, saved_seconds: float = 0.0, trace_seconds: float = 0.0) -> None:
        self.notes.append((seconds, trace_seconds))


def test_one_notice_for_tracing_and_compiling_and_none_for_other_steps() -> None:
    bar = Notes()
    run = L.Trainer(callbacks=[bar], **OPTIONS)
    run.fit(Slow(0.3), batches(4))
    trace, compile, (compiling, tracing) = bar.notes
    assert (trace, compile) == ("trace the training step (first call)", "compile the training step (first call)")
    assert tracing > 0.3
    assert compiling > 0
    assert (tracing, compiling) == (run.compiles[0].trace_seconds, run.compiles[0].compile_seconds)


def test_a_trace_whose_program_is_there_ends_too() -> None:
    class Flips(Line):
        flag = 0

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            assert self.flag in ("even", "odd")  # watched, and without effect on the graph
            return super().training_step(batch, batch_idx)

        def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
            self.flag = "even" if batch_idx % 2 == 0 else "odd"  # type: ignore[assignment]

    bar = Notes()
    L.Trainer(callbacks=[bar], **OPTIONS).fit(Flips(), batches(4))
    assert len(bar.notes) == 5
    assert bar.notes[3].startswith("trace the training step (")
    assert bar.notes[4][0] == 0.0
    assert bar.notes[4][1] > 0.0


def test_a_terminal_shows_a_spinner_while_the_step_is_traced() -> None:
    terminal = io.StringIO()
    bar = RichProgressBar(console_kwargs={"force_terminal": True, "file": terminal, "width": 120, "color_system": None})
    L.Trainer(callbacks=[bar], **OPTIONS).fit(Slow(1.2), batches(2))
    shown = terminal.getvalue()
    assert shown.count("Tracing the training step (first call)") >= 5
    assert "Compiling the training step (first call): " in shown
    assert "(tracing " in shown


def test_a_log_says_that_tracing_takes_long(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_displays, "_PATIENCE_S", 0.2)
    L.Trainer(callbacks=[RichProgressBar()], **OPTIONS).fit(Slow(0.5), batches(2))
    lines = capsys.readouterr().out.splitlines()
    # earlier tests may have traced this step
    assert re.fullmatch(r"Tracing the training step \(first call\)(, about \d+ s in an earlier run)? \.\.\.", lines[0])
    told = next(line for line in lines if ": done in " in line)
    assert told.startswith("Compiling the training step (first call): done in ")
    assert "(tracing " in told
