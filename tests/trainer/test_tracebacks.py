"""An error in the user's code shows the user's frames."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torchmetrics
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset
from trainer.runs import Given, Line, batches, trainer

import systolic as L

OURS = str(Path(L.__file__).parent)
TRACER = ("/torch/fx/", "/torch/_subclasses/", "/torch/_functorch/", "/torch/_ops.py")


class Wrong(Exception):
    """Raised by the user's code."""


def in_training_step(module: Any, batch: Any) -> torch.Tensor:
    return module.layer(batch["x"]).sum() + undefined_name  # type: ignore[name-defined]  # noqa: F821


def with_a_cause(module: Any, batch: Any) -> torch.Tensor:
    try:
        in_training_step(module, batch)
    except NameError as error:
        raise Wrong("with a cause") from error
    raise AssertionError


def in_a_library(module: Any, batch: Any) -> torch.Tensor:
    return torchmetrics.MeanSquaredError()(batch["x"], batch["y"][:3])


class InHook(Line):
    def on_before_backward(self, loss: torch.Tensor) -> None:
        raise Wrong("in a hook inside the step")


class BadSamples(Dataset):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        raise Wrong("in the dataset")


class BadStream(IterableDataset):
    def __iter__(self) -> Iterator[Any]:
        raise Wrong("in the stream")


def files_of(error: BaseException) -> list[str]:
    return [frame.filename for frame in traceback.extract_tb(error.__traceback__)]


def error_of(module: L.LightningModule, data: Any) -> BaseException:
    with pytest.raises((Wrong, NameError, RuntimeError)) as caught:
        trainer().fit(module, data)
    return caught.value


CASES: dict[str, tuple[Callable[[], L.LightningModule], Callable[[], Any]]] = {
    "training_step": (lambda: Line(in_training_step), lambda: batches(2)),
    "a cause": (lambda: Line(with_a_cause), lambda: batches(2)),
    "a hook in the step": (InHook, lambda: batches(2)),
    "a library's forward": (lambda: Line(in_a_library), lambda: batches(2)),
    "a dataset": (Line, lambda: DataLoader(BadSamples(), batch_size=4)),
    "a stream": (Line, lambda: DataLoader(BadStream(), batch_size=4)),
}


@pytest.mark.parametrize("case", CASES)
def test_at_most_three_frames_are_ours_and_none_the_tracers(case: str) -> None:
    module, data = CASES[case]
    files = files_of(error_of(module(), data()))
    assert sum(file.startswith(OURS) for file in files) <= 3
    assert not [file for file in files if any(part in file for part in TRACER)]
    assert files.count(__file__) >= 2  # the call of fit, and the line that raised


@pytest.mark.parametrize("case", CASES)
def test_all_frames_are_shown_on_request(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYSTOLIC_FULL_TRACEBACK", "1")
    module, data = CASES[case]
    assert sum(file.startswith(OURS) for file in files_of(error_of(module(), data()))) > 3


def test_what_an_error_comes_from_is_kept_and_shortened_as_well() -> None:
    error = error_of(Line(with_a_cause), batches(2))
    assert isinstance(error.__cause__, NameError)
    assert files_of(error.__cause__) == [__file__, __file__]
    text = "".join(traceback.format_exception(error))
    assert "direct cause" in text


def test_an_error_of_jit_shows_the_functions_frames() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        return nn.Linear(4, 2)(x).undefined  # type: ignore[attr-defined]

    with pytest.raises(AttributeError) as caught:
        L.jit(step)(torch.ones(2, 4))
    assert sum(file.startswith(OURS) for file in files_of(caught.value)) == 1
    assert files_of(caught.value)[-1] == __file__


def test_a_wrong_step_runs_once() -> None:
    calls = []

    def counted(module: Any, batch: Any) -> torch.Tensor:
        calls.append(1)
        return module.layer(batch["x"]).sum() + undefined_name  # type: ignore[name-defined]  # noqa: F821

    error_of(Line(counted), Given([{"x": torch.ones(2, 4)}]))
    assert len(calls) == 1


class Checked(Line):
    """Its optimizer wants a plain number."""

    def configure_optimizers(self) -> torch.optim.Optimizer:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        step = optimizer.step

        def checked(closure: Any = None) -> Any:
            rate = optimizer.param_groups[0]["lr"]
            if not isinstance(rate, float):
                raise TypeError("the learning rate is no number")
            return step(closure)

        optimizer.step = checked  # type: ignore[method-assign]
        return optimizer


def test_a_step_that_needs_a_plain_number_is_captured_with_one() -> None:
    run = trainer()
    run.fit(Checked(), batches(3))
    assert run.global_step == 3
