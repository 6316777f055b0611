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
from systolic.preflight._kept import named

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
        return (layer(batch[0]) + torch.randn(8, 1)).square().mean()  # JAX makes functions of generators

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


def test_frames_are_left_out_wherever_they_stand() -> None:
    written = """func @main(%a: f32 loc("x"), %b: f32 loc(callsite(#loc1 at #loc2))) {
  %0 = sine %a loc(#loc4)
  %1 = cosine %b loc("cos"(#loc3))
} loc(#loc)
#loc = loc(unknown)
#loc1 = loc("a.py":4:15 to :25)
#loc2 = loc("f"(#loc1))
#loc3 = loc(callsite(#loc1 at #loc2))
#loc4 = loc("jit(f)/[user.py:3]/sin"(#loc3))"""
    assert (
        named(written)
        == """func @main(%a: f32 loc("x"), %b: f32 loc()) {
  %0 = sine %a loc("jit(f)/[user.py:3]/sin")
  %1 = cosine %b loc("cos")
} loc()"""
    )


def test_a_program_whose_names_differ_is_another_one() -> None:
    first, renamed = asked("layer"), asked("other")
    assert not renamed.compilation.was_cached
    assert "model.layer" in {one.module for one in first.operations}
    assert "model.other" in {one.module for one in renamed.operations}
