"""Plans as the Trainer hands them steps and lengths: which batch of an update is traced, and how long the run is."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from preflight.planning.planned import Wide, cell, loader, steps_of
from torch import nn
from trainer.runs import trainer

from systolic.callbacks import GradientAccumulationScheduler
from systolic.exceptions import MisconfigurationException
from systolic.preflight import PlanRequest, RunLength, parse_slice, slices_in
from systolic.strategies import ModelParallel
from systolic.trainer import Intended, plan
from systolic.trainer.inspection._plan import _left_out, _length

pytest.importorskip("libtpu")

REQUEST = PlanRequest(tuple(slices_in("v5litepod-1")), 8)


def test_batches_before_the_last_one_only_add_to_the_gradients() -> None:
    steps, way = steps_of(Wide(64)), cell("v5litepod-1", core_batch=4, accumulation=2)
    middle, last = (steps.traced(way, updates=updates) for updates in (False, True))
    written = {"middle": middle, "last": last}
    for name, step in written.items():
        entries = step.state.entries
        changed = {entries[slot].kind for slot in step.captured.slot_outputs}
        assert "gradient" in changed or name == "last"
        assert ("parameter" in changed) == (name == "last")
    assert (middle.core_batch, middle.global_batch) == (4, 4)


def test_the_trainer_is_left_as_it_was() -> None:
    mine = trainer(accumulate_grad_batches=3, strategy="fsdp", remat="dots")
    before = mine.config
    found = plan(Intended(mine, "fit", Wide(64), loader(), None), REQUEST)
    assert mine.config is before
    assert {row.cell.remat for row in (*found.compiled, *found.modelled)} <= {"none", "dots", "full"}


def test_what_cannot_be_run_so_is_left_out_and_told() -> None:
    class Single(Wide):
        """Has no repeated blocks."""

        def __init__(self) -> None:
            super().__init__(64)
            self.net = nn.Linear(128, 128)

    found = plan(Intended(trainer(), "fit", Single(), loader(), None), REQUEST)
    [note] = found.notes
    assert note.startswith("without remat='full': ")
    assert "repeated blocks" in note
    assert "full" not in {row.cell.remat for row in (*found.compiled, *found.modelled)}


@pytest.mark.parametrize(
    ("options", "request_", "expected"),
    [
        ({"max_epochs": 5}, {}, RunLength(5, None, 64, None, "max_epochs=5")),
        ({"max_epochs": None, "max_steps": 7}, {}, RunLength(None, 7, 64, None, "max_steps=7")),
        ({"max_epochs": 2, "max_steps": 7}, {}, RunLength(2, 7, 64, None, "max_epochs=2, max_steps=7")),
        ({"max_epochs": None}, {}, RunLength(1000, None, 64, None, "max_epochs=1000, the default")),
        ({"max_epochs": 5, "limit_train_batches": 0.5}, {}, RunLength(5, None, 32, None, "max_epochs=5")),
        ({"max_epochs": 5, "limit_train_batches": 3}, {}, RunLength(5, None, 64, 3, "max_epochs=5")),
        ({"max_epochs": 5}, {"epochs": 2}, RunLength(2, None, 64, None, "2 epochs")),
        ({"max_epochs": 5}, {"steps": 9}, RunLength(None, 9, 64, None, "9 updates")),
        ({"max_epochs": 5}, {"epochs": 2, "steps": 9}, RunLength(2, 9, 64, None, "2 epochs, at most 9 updates")),
    ],
)
def test_the_length_of_the_run(options: dict[str, Any], request_: dict[str, int], expected: RunLength) -> None:
    request = PlanRequest(REQUEST.slices, 8, **request_)
    assert _length(trainer(**options).config, request, 64) == expected


def test_only_training_is_planned() -> None:
    with pytest.raises(MisconfigurationException, match=r"has to be trainer.fit. Received: trainer.validate"):
        plan(Intended(trainer(), "validate", Wide(64), loader(), None), REQUEST)


def test_manual_optimization_accumulates_by_itself() -> None:
    class Manual(Wide):
        def __init__(self) -> None:
            super().__init__(64)
            self.automatic_optimization = False

        def training_step(self, batch: Any, batch_idx: int) -> None:
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(super().training_step(batch, batch_idx))
            optimizer.step()

    found = plan(Intended(trainer(), "fit", Manual(), loader(), None), dataclasses.replace(REQUEST, remats=("none",)))
    assert found.space == 1
    assert {row.cell.accumulation for row in found.compiled} == {1}
    assert "manual optimization: no way accumulates" in found.notes


def test_a_callback_that_chooses_the_accumulation_is_refused() -> None:
    mine = trainer(callbacks=[GradientAccumulationScheduler({0: 2})])
    with pytest.raises(MisconfigurationException, match="so does the script's GradientAccumulationScheduler"):
        plan(Intended(mine, "fit", Wide(64), loader(), None), REQUEST)


def test_hybrid_sharding_has_a_group_for_each_host() -> None:
    steps = steps_of(Wide(64))
    shapes = [steps.layout("hsdp", parse_slice(name)).shape for name in ("v5litepod-8", "v5litepod-16")]
    assert [(shape.data, shape.fsdp) for shape in shapes if shape is not None] == [(2, 4), (4, 4)]


def test_settings_that_are_not_looked_at_are_told() -> None:
    own = trainer(devices=2, strategy=ModelParallel(fsdp=2, tensor=1, split="optimizer", data=1))
    told = _left_out(own.config, REQUEST)
    assert len(told) == 1
    assert "the script's strategy" in told[0]
    assert _left_out(trainer(strategy="fsdp", devices=2).config, REQUEST) == []
    assert len(_left_out(trainer(strategy="hsdp", devices=4).config, REQUEST)) == 1
    keeps = trainer(remat=lambda op: op is torch.ops.aten.mm.default, max_time="00:01:00:00")
    assert [text.split(",")[0] for text in _left_out(keeps.config, REQUEST)] == [
        "the script's remat is a function",
        "max_time of the script's Trainer",
    ]
