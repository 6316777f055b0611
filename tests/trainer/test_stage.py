"""One vocabulary for what a Trainer is doing: Lightning's, and hooks that exist."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from trainer.as_lightning import Package, require_same
from trainer.three_ways import loader

import systolic as L
from systolic.trainer._stage import STAGE_OF, Stage
from systolic.trainer.states import RunningStage, TrainerFn

SOURCE = Path(L.__file__).parent / "trainer"
CALLS = (
    "both",
    "module",
    "callbacks",
    "callbacks_where",
    "anybody",
    "overridden",
    "module_hook",
    "data_hook",
    "module_or_default",
)


@pytest.mark.parametrize("name", ["TrainerFn", "RunningStage"])
def test_names_and_values_are_lightnings(name: str) -> None:
    states = pytest.importorskip("lightning.pytorch.trainer.states")
    ours = {"TrainerFn": TrainerFn, "RunningStage": RunningStage}[name]
    assert {m.name: m.value for m in ours} == {m.name: m.value for m in getattr(states, name)}
    for theirs in getattr(states, name):
        mine = ours(theirs.value)
        assert mine == theirs.value
        assert mine == theirs.value.upper()
        assert (str(mine), f"{mine}", mine.value) == (str(theirs), f"{theirs}", theirs.value)
        assert mine in {theirs.value}


def test_state_says_what_lightnings_says_at_every_batch() -> None:
    def scenario(package: Package) -> Any:
        seen: list[Any] = []

        def note(self: Any, *_: Any, **__: Any) -> None:
            state = self.trainer.state
            entry = (state.fn.value, state.stage.value, state.stage == "validate")
            if seen[-1:] != [entry]:
                seen.append(entry)

        hooks = [f"on_{stage}_batch_start" for stage in ("train", "validation", "test", "predict")]
        steps = {f"{stage}_step": lambda self, batch, batch_idx: None for stage in ("validation", "test", "predict")}
        module = package.module(**dict.fromkeys([*hooks, "setup"], note), **steps)
        trainer = package.trainer(max_epochs=1, num_sanity_val_steps=1)
        trainer.fit(module, loader(4), loader(4))
        trainer.validate(module, loader(4), verbose=False)
        trainer.test(module, loader(4), verbose=False)
        trainer.predict(module, loader(4))
        return seen

    seen = require_same(scenario)
    assert seen == [
        ("fit", "train", False),  # in `setup`
        ("fit", "sanity_check", False),
        ("fit", "train", False),
        ("fit", "validate", True),
        ("validate", "validate", True),
        ("test", "test", False),
        ("predict", "predict", False),
    ]


def test_stages_are_found_by_the_trainers_methods() -> None:
    assert {name: stage.name for name, stage in STAGE_OF.items()} == {
        "fit": "FIT",
        "validate": "VALIDATE",
        "test": "TEST",
        "predict": "PREDICT",
    }
    assert Stage.SANITY_CHECK.fn is TrainerFn.FITTING


def test_hooks_that_are_called_exist_and_their_names_are_not_built() -> None:
    called: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CALLS
            if is_call and ast.unparse(node.func.value).endswith("hooks"):
                assert not any(isinstance(part, ast.JoinedStr) for part in node.args), ast.unparse(node)
                called |= {a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)}
    edges = ("start", "end", "epoch_start", "epoch_end", "batch_start", "batch_end")
    assert len(called) > 10
    for name in called | {getattr(stage, edge) for stage in Stage for edge in edges}:
        assert any(hasattr(owner, name) for owner in (L.Callback, L.LightningModule, L.LightningDataModule)), name
