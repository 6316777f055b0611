"""Text by `%` of values of a step, shown and kept: what Lightning shows and keeps, with one program."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from beside_lightning import Method, beside_lightning, module_of, trainer_of
from torch.utils.data import DataLoader

import systolic

LOG = logging.getLogger("of the test")


def _kept(self: Any, batch: Any, i: int) -> torch.Tensor:
    loss = self.loss(batch)
    self.seen.append("loss %.3f at %d" % (loss, i))  # noqa: UP031 - as people write it, here and below
    self.seen.append("%8.3f|%-7.2f|%05d|%.2e %.3g" % (loss.item(), loss.item() * 2, i, loss, loss))  # noqa: UP031
    self.status = "%.1f%% of %d, %s" % (100 * loss.item(), batch[1].sum(), "text")  # noqa: UP031
    self.seen.append(self.status)
    return loss


def _by_name(self: Any, batch: Any, i: int) -> torch.Tensor:
    loss = self.loss(batch)
    self.seen.append("%(loss).2f and %(step)+d" % {"loss": loss.detach(), "step": self.global_step})  # noqa: UP031
    return loss


def _alike(self: Any, batch: Any, i: int) -> torch.Tensor:
    loss = self.loss(batch)
    self.seen.append("%.3f %.4f %.2f %d %i" % (loss, loss, loss * 10, batch[1].max(), batch[1].max().item()))  # noqa: UP031
    return loss


def _under_a_condition(self: Any, batch: Any, i: int) -> torch.Tensor:
    loss = self.loss(batch)
    if i % 2 == 0:
        self.seen.append("even %d: %.3f" % (i, loss.item()) + f", {loss:.2f}")  # noqa: UP031
    return loss


def _in_validation(self: Any, batch: Any, i: int) -> None:
    self.seen.append("%.3f" % self.loss(batch).item())  # noqa: UP031


FORM = "at %d"


def _of_formats_elsewhere(self: Any, batch: Any, i: int) -> torch.Tensor:
    loss, form = self.loss(batch), "loss %.3f "
    self.form = "%.1f of"
    self.seen.append((form + FORM) % (loss, i) + self.form % loss.item() + FORM % self.global_step)
    return loss


STEPS: dict[str, dict[str, Method]] = {
    "formats elsewhere": {"training_step": _of_formats_elsewhere},
    "kept": {"training_step": _kept},
    "by name": {"training_step": _by_name},
    "alike": {"training_step": _alike},
    "under a condition": {"training_step": _under_a_condition},
    "in validation": {"validation_step": _in_validation},
}


@pytest.mark.thin(3)
@pytest.mark.parametrize("devices", [1, 4])
@pytest.mark.parametrize("name", STEPS)
def test_what_is_kept_equals_lightnings(name: str, devices: int) -> None:
    module = beside_lightning(STEPS[name], lambda module: module.seen, devices=devices)
    made = [one for one in module.trainer.compiles if one.is_new_executable]
    assert len(made) == {"under a condition": 2, "in validation": 3}.get(name, 1)


def test_what_is_printed_and_logged(capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    def step(x: torch.Tensor, i: int) -> torch.Tensor:
        loss = x.pow(2).mean()
        print("loss %.3f" % loss, "at %d" % i)  # noqa: T201, UP031
        LOG.info("%.2f of " % loss + "%s", "all")  # noqa: UP031
        return loss

    compiled: Any = systolic.jit(step)
    with caplog.at_level(logging.INFO, "of the test"):
        for i in range(3):
            x = torch.full((3,), i + 0.5)
            step(x, i)
            compiled(x, i)
    lines = capsys.readouterr().out.splitlines()
    assert lines[::2] == lines[1::2] == ["loss 0.250 at 0", "loss 2.250 at 1", "loss 6.250 at 2"]
    told = [one.getMessage() for one in caplog.records if one.name == "of the test"]
    assert told[::2] == told[1::2] == ["0.25 of all", "2.25 of all", "6.25 of all"]


def test_a_number_of_each_batch_as_a_key() -> None:
    names = {"0": 1.0, "1": 2.0, "2": 3.0}
    compiled: Any = systolic.jit(lambda x, i: x * names["%d" % i])  # noqa: UP031
    assert [compiled(torch.ones(1), i).item() for i in (0, 2, 1)] == [1.0, 3.0, 2.0]


@pytest.mark.parametrize(
    "step",
    [
        lambda self, batch, i: self.loss(batch) * len("%.3f" % self.loss(batch)),  # noqa: UP031
        lambda self, batch, i: self.loss(batch) * float("%.1f" % self.loss(batch)),  # noqa: UP031
        lambda self, batch, i: self.loss(batch) * (2 if "%.1f" % self.loss(batch) == "0.0" else 3),  # noqa: UP031
    ],
)
def test_what_works_on_the_text_is_refused(step: Method) -> None:
    module = module_of(systolic, {"training_step": step}, lambda module: None)
    with pytest.raises(systolic.CaptureError, match=r"(?s)test_percent_texts.py:\d+"):
        trainer_of(systolic).fit(module, DataLoader([(torch.zeros(4), 0)] * 4, batch_size=2))
