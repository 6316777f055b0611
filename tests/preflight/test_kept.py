"""What the compiler said about a program is found again by the program, whoever asks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from trainer.runs import trainer

import systolic as L
from systolic.preflight import PreflightReport

pytest.importorskip("libtpu")


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYSTOLIC_CACHE_DIR", str(tmp_path))


class Line(L.LightningModule):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.add_module(name, nn.Linear(8, 1))

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        [layer] = self.children()
        return layer(batch[0]).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def asked(name: str = "layer") -> PreflightReport:
    return trainer().preflight(Line(name), DataLoader(TensorDataset(torch.rand(8, 8)), batch_size=8), slice="v5litepod-1")


def asked_from_elsewhere() -> PreflightReport:
    return asked()


def test_a_program_is_known_wherever_the_question_comes_from() -> None:
    first = asked()
    again = asked_from_elsewhere()
    assert (first.compilation.was_cached, again.compilation.was_cached) == (False, True)
    assert again.operations == first.operations


def test_a_program_whose_names_differ_is_another_one() -> None:
    first, renamed = asked("layer"), asked("other")
    assert not renamed.compilation.was_cached
    assert "model.layer" in {one.module for one in first.operations}
    assert "model.other" in {one.module for one in renamed.operations}
