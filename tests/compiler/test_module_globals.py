"""Globals, closures, class attributes and plain objects that modules read are watched like attributes (contract C5)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import systolic
import systolic as L

GAIN = 2.0
SQUARED = False
SETTINGS: dict[str, Any] = {"shift": 0.5, "deep": {"clip": 3.0}}
TABLE = list(range(10_000))


def helped(x: torch.Tensor) -> torch.Tensor:
    return x.square() if SQUARED else x


class Knobs:
    """No dataclass, no module: an object like any other."""

    def __init__(self) -> None:
        self.slope = 0.25
        self.on = True
        self.label = "untouched"


class Reader(nn.Module):
    offset = 0.125

    def __init__(self) -> None:
        super().__init__()
        self.knobs = Knobs()

    @property
    def gain(self) -> float:
        return GAIN

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = helped(x * self.gain + SETTINGS["shift"] + self.offset).clamp(max=SETTINGS["deep"]["clip"])
        return torch.where(x > 0, x, x * self.knobs.slope) if self.knobs.on else x


def change_global(model: Reader, patch: pytest.MonkeyPatch) -> None:
    patch.setitem(globals(), "GAIN", 0.5)


def change_helper_flag(model: Reader, patch: pytest.MonkeyPatch) -> None:
    patch.setitem(globals(), "SQUARED", True)


def change_dict(model: Reader, patch: pytest.MonkeyPatch) -> None:
    patch.setitem(SETTINGS, "shift", -0.75)


def change_nested_dict(model: Reader, patch: pytest.MonkeyPatch) -> None:
    patch.setitem(SETTINGS["deep"], "clip", 1.0)


def change_number_of_object(model: Reader, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(model.knobs, "slope", 0.75)


def change_flag_of_object(model: Reader, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(model.knobs, "on", False)


def change_class_attribute(model: Reader, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Reader, "offset", 0.25)


CHANGES = [
    change_class_attribute,
    change_global,
    change_helper_flag,
    change_dict,
    change_nested_dict,
    change_number_of_object,
    change_flag_of_object,
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_compiled_module_follows(change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = Reader(), torch.linspace(-3, 3, 7)
    step = systolic.jit(model)
    before = model(x)
    torch.testing.assert_close(step(x), before)
    change(model, monkeypatch)
    assert not torch.equal(model(x), before), "the change has no effect: the test shows nothing"
    torch.testing.assert_close(step(x), model(x))
    assert len(step.compiles) == 2


class Training(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)
        self.reader = Reader()

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        return self.reader(self.layer(batch)).square().mean() * GAIN

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.05)


class Turns(L.Callback):
    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.patch = patch

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if batch_idx >= 2:
            self.patch.setitem(globals(), "GAIN", 1.0 + batch_idx)


def test_training_follows_a_global(monkeypatch: pytest.MonkeyPatch) -> None:
    def fit(compile: bool) -> tuple[L.Trainer, Training]:
        torch.manual_seed(0)
        monkeypatch.setitem(globals(), "GAIN", 2.0)
        module = Training()
        loader = DataLoader(torch.randn(24, 4), batch_size=4)  # pyright: ignore[reportArgumentType]
        options: dict[str, Any] = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
        trainer = L.Trainer(accelerator="cpu", max_epochs=1, compile=compile, callbacks=[Turns(monkeypatch)], **options)
        trainer.fit(module, loader)
        return trainer, module

    (trainer, compiled), (_, eager) = fit(True), fit(False)
    torch.testing.assert_close(compiled.layer.weight, eager.layer.weight, rtol=1e-5, atol=1e-6)
    # the first change makes it a variable input; later ones cost no new program
    assert sum(c.is_new_executable for c in trainer.compiles) <= 3, [c.reason for c in trainer.compiles]


class Counting(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * len(TABLE)


def test_large_tables_are_constants() -> None:
    assert systolic.jit(Counting())(torch.ones(1)).item() == 10_000


def recorder() -> tuple[nn.Module, list[Any], type[nn.Module]]:
    """A module that keeps books around itself: in a closure, in a closure's number, and in its class."""
    kept: list[Any] = []
    calls = 0

    class Recorder(nn.Module):
        seen: list[int] = []
        total = 0

        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            nonlocal calls
            calls += 1
            out = self.layer(x).sum()
            kept.append((calls, out.detach()))
            self.seen.append(x.shape[0])
            type(self).total += x.shape[0]
            return out

    return Recorder(), kept, Recorder


def test_what_a_step_keeps_in_closures_and_classes_is_kept_in_every_step() -> None:
    books = []
    for compiled in (True, False):
        torch.manual_seed(0)
        module, kept, cls = recorder()
        step = systolic.jit(module) if compiled else module
        with torch.no_grad():
            for size in (3, 3, 5, 3):
                step(torch.arange(2.0 * size).reshape(size, 2))
        books.append(([(number, round(value.item(), 4)) for number, value in kept], cls.seen, cls.total))
    assert books[0] == books[1]
    assert books[0][1:] == ([3, 3, 5, 3], 14)


def test_a_number_of_a_closure_that_host_code_changes_is_noticed() -> None:
    scale = 2.0

    class Scaled(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * scale

    step = systolic.jit(Scaled())
    assert step(torch.ones(1)).item() == 2.0
    scale = 3.0
    assert step(torch.ones(1)).item() == 3.0
