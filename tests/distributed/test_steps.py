"""Steps as people write them, in two processes of four cores: as in eager PyTorch, and as under Lightning."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import lightning
import pytest
from distributed.processes import run_processes
from trainer.beside_lightning import loader, module_of, require_equal, trainer_of
from trainer.evaluation_bodies import BODIES, held, methods_of, prepare
from trainer.step_patterns import PATTERNS
from trainer.step_sweep import difference, train
from trainer.test_step_patterns import IN_FLOAT64, REFUSED

SCRIPT = Path(__file__).with_name("steps.py")
# One of each kind.
FAST = (
    "PrintLoss", "KeepArrays", "AppendAndUse", "IfLossLarge", "MaskedRows", "HardNegatives", "WriteMasked", "Mixup", "QueuePointer", "F1",
)  # fmt: skip
OTHERS = [name for name in PATTERNS if name not in {*FAST, *REFUSED, *IN_FLOAT64}]
PARTS = 5  # on a machine with much else to do the processes would not end within their time otherwise


def outcomes(directory: Path, kind: str, *names: str) -> list[dict[str, Any]]:
    """What each process found, by name."""
    count = len(run_processes(SCRIPT, 2, 4, str(directory), kind, "4", *names))
    return [pickle.loads((directory / f"{index}.pkl").read_bytes()) for index in range(count)]


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(FAST, id="one of each kind"),
        *(pytest.param(OTHERS[part::PARTS], id=f"others {part}", marks=pytest.mark.tables) for part in range(PARTS)),
    ],
)
def test_training_steps_equal_eager_pytorch(names: list[str], tmp_path: Path) -> None:
    found = outcomes(tmp_path, "train", *names)
    for name in names:
        eager = train(name, compiled=False)
        assert [difference(eager, one[name]) for one in found] == ["", ""], name


def test_evaluation_steps_see_what_they_see_under_lightning(tmp_path: Path) -> None:
    found = outcomes(tmp_path, "evaluate", *BODIES)
    for name in BODIES:
        module = module_of(lightning, methods_of(name), lambda module, name=name: prepare(module, tmp_path / f"{name} beside"))
        trainer = trainer_of(lightning, max_epochs=2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Lightning's advice on loaders
            trainer.fit(module, loader(48, 1), loader(36, 2))
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
        expected = held(module), metrics, [p.detach().double().sum().item() for p in module.parameters()]
        for one in found:
            require_equal(one[name], expected)
