"""Advice: given when there is a reason, with the evidence; silent and cheap otherwise."""

from __future__ import annotations

import re
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset
from trainer.runs import Given, Line, batches, trainer

import systolic as L
from systolic.diagnostics import AdviceWarning, Advisor, RunRecord, _advisor


class Slow(Dataset):
    def __init__(self, seconds: float = 0.01) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return 120

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        time.sleep(self.seconds)
        return {"x": torch.ones(4), "y": torch.ones(1)}


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Advice after a fifth of a second instead of two."""
    monkeypatch.setattr(_advisor, "_SECONDS", 0.2)


def line_of(text: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def advice(module: L.LightningModule, data: Any, **options: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer(**options).fit(module, data)
    return [str(w.message) for w in caught if w.category is AdviceWarning]


def test_waiting_for_data_is_said_once_with_share_and_place(soon: None) -> None:
    (text,) = advice(Line(), DataLoader(Slow(), batch_size=1), max_epochs=2)
    found = re.match(r"Training waited for data (\d+)% of the time: ([\d.]+) of ([\d.]+) s in (\d+) steps\.", text)
    assert found, text
    assert int(found[1]) > 60
    assert float(found[2]) >= 0.01 * (int(found[4]) - 5)
    assert f"{__file__}:{line_of('def __getitem__')} in Slow.__getitem__" in text
    assert "num_workers=0" in text


def ragged(widths: list[int], count: int = 1) -> Given:
    return Given([{"x": torch.ones(2, width), "y": torch.ones(2, 1)} for width in widths for _ in range(count)])


class Ragged(Line):
    def training_step(self, batch, batch_idx):
        return (self.layer.weight.mean() * batch["x"].sum(1, keepdim=True) - batch["y"]).square().mean()


# promise 7: R#1433; the tensor, the dimension and the step are named
def test_recompiling_names_tensor_dimension_and_step() -> None:
    (text,) = advice(Ragged(), ragged([4, 5, 6, 7, 8, 9], count=2))
    assert "compiled 4 times more in 9 steps" in text
    assert "step 3: batch['x'] dimension 1: 4 -> 5" in text
    assert "step 9: batch['x'] dimension 1: 7 -> 8" in text
    assert "Pad the batches" in text


class Telling(Line):
    def training_step(self, batch, batch_idx):
        self.told = "batch {}".replace("{}", "%d") % batch_idx
        return super().training_step(batch, batch_idx)


def test_a_trace_in_every_step_is_said_with_its_line() -> None:
    (text,) = advice(Telling(), batches(30))
    assert "traced 24 times in the last 24 steps" in text
    assert f"a number decides otherwise at {__file__}:{line_of('self.told =')} in training_step" in text
    assert "f-strings" in text
    assert advice(Telling(), batches(20)) == []


def test_a_smaller_last_batch_is_no_reason() -> None:
    data = Given([*batches(3), *batches(1, size=3)])
    assert advice(Line(), data, max_epochs=3) == []


# promise 7: R#1433; compiling for ever is an error
def test_recompile_limit() -> None:
    with pytest.raises(L.RecompileLimitError, match=r"compiled 3 times") as told:
        trainer(recompile_limit=3).fit(Ragged(), ragged([4, 5, 6, 7, 8]))
    text = str(told.value)
    assert "batch['x'] dimension 1: 6 -> 7" in text
    assert "Trainer(recompile_limit=...), now 3" in text
    trainer(recompile_limit=3).fit(Ragged(), ragged([4, 5, 6]))


def test_reasons_name_every_difference() -> None:
    class Pair(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(()))

        def training_step(self, batch, batch_idx):
            a, (b, n) = batch
            return (self.weight * a.float()).mean() + b.float().mean() * n

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    kept: list[str] = []

    class Keep(L.Callback):
        def on_train_end(self, trainer, pl_module):
            kept.extend(c.reason for c in trainer.compiles)

    data = Given([[torch.ones(2, 3), (torch.ones(2), 5)], [torch.ones(4, 3), (torch.ones(4).double(), 5)]])
    trainer(callbacks=[Keep()]).fit(Pair(), data)
    assert kept[-1] == "batch[0] dimension 0: 2 -> 4, batch[1][0] dimension 0: 2 -> 4, batch[1][0] dtype: float32 -> float64"


class Heavy(L.LightningModule):
    def __init__(self, reads: bool, products: int = 4) -> None:
        super().__init__()
        self.reads = reads
        self.products = products
        self.weight = torch.nn.Parameter(torch.randn(300, 300) / 300)

    def training_step(self, batch, batch_idx):
        x = batch["x"]
        for _ in range(self.products):
            x = torch.tanh(x @ self.weight)
        return x.square().mean()

    def on_train_batch_end(self, outputs, batch, batch_idx):
        if self.reads:
            outputs["loss"].item()  # the line that waits

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


# promise 3: L#15884; a line that makes the host wait in every step is named
def test_reading_in_the_loop_names_the_line(soon: None) -> None:
    data = Given([{"x": torch.randn(300, 300)}] * 70)
    (text,) = advice(Heavy(reads=True), data)
    assert text.startswith(f"{__file__}:{line_of('# the line that waits')} in Heavy.on_train_batch_end reads a value")
    found = re.search(r"reads a value from the devices 1\.0 times a step, and the host waited (\d+)% of the time", text)
    assert found, text
    assert 10 <= int(found[1]) <= 100


@pytest.mark.slow
def test_short_steps() -> None:
    (text,) = advice(Line(), batches(200), max_epochs=60)
    assert re.match(r"A training step takes \d+ us, and in \d+ of \d+ looks the devices had finished", text)
    assert "steps_per_dispatch" in text


def test_off() -> None:
    assert advice(Ragged(), ragged([4, 5, 6, 7, 8, 9]), advice=False) == []


def test_a_healthy_run_hears_nothing(soon: None) -> None:
    # steps long enough that a busy machine, which keeps the loader's thread waiting, does not make them wait for data
    assert advice(Heavy(reads=False, products=16), Given([{"x": torch.randn(300, 300)}] * 70)) == []


def test_quiet_watching_calls_few_functions_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls, for a clock would decide by what else runs. They took under a microsecond for watching, and two for the record."""
    monkeypatch.setattr(_advisor, "_SHORT_STEPS", 10**9)  # empty steps are short steps

    def calls(recorded: bool, watched: bool, count: int = 1_000) -> float:
        source: Iterator[int] = iter(range(count))
        advisor = Advisor(None, lambda: True) if watched else None
        items = RunRecord().watched("training", source, [], advisor) if recorded else source
        made = 0

        def called(frame: object, event: str, argument: object) -> None:
            nonlocal made
            made += event in ("call", "c_call")

        sys.setprofile(called)
        try:
            for _ in items:
                pass
        finally:
            sys.setprofile(None)
        return made / count

    bare, recorded, watched = (calls(*how) for how in ((False, False), (True, False), (True, True)))
    assert watched - recorded < 0.2
    assert recorded - bare < 14, "the record itself, which runs without advice have, too"
