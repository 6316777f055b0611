"""Callbacks that an installed package adds to every Trainer, by the entry point that Lightning documents."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import lightning
import pytest
from beside_lightning import loader, module_of, trainer_of

import systolic
from systolic.exceptions import MisconfigurationException

_PACKAGE = """
import {library}.pytorch as pl

class Counted(pl.Callback):
    def __init__(self):
        self.batches = 0

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.batches += 1

def none():
    return []

def one():
    return Counted()

def two():
    return [Counted(), Counted()]

def number():
    return 3
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that installs a package with an entry point."""

    def installed(library: Any, factory: str) -> None:
        path = tmp_path / library.__name__
        metadata = path / "counted-1.0.dist-info"
        metadata.mkdir(parents=True, exist_ok=True)
        (path / f"counted_{library.__name__}.py").write_text(_PACKAGE.format(library=library.__name__))
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: counted\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(
            f"[lightning.pytorch.callbacks_factory]\ncounted = counted_{library.__name__}:{factory}\n"
        )
        monkeypatch.setattr(sys, "path", [str(path), *(one for one in sys.path if not one.startswith(str(tmp_path)))])

    return installed


@pytest.mark.parametrize(("factory", "count"), [("none", 0), ("one", 1), ("two", 2)])
def test_they_are_called_in_every_run(factory: str, count: int, install: Any) -> None:
    found = []
    for library in (lightning, systolic):
        install(library, factory)
        trainer = trainer_of(library, max_epochs=2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore" if library is lightning else "error")
            trainer.fit(module_of(library, {}, lambda module: None), loader(48, 1))
        found.append([(type(one).__name__, one.batches) for one in trainer.callbacks])
    assert found == [[("Counted", 6)] * count] * 2


def test_lightnings_callbacks_are_guests(install: Any) -> None:
    install(lightning, "one")
    trainer = trainer_of(systolic)
    trainer.fit(module_of(systolic, {}, lambda module: None), loader(48, 1))
    assert [one.batches for one in trainer.callbacks] == [3]


def test_another_object_is_refused(install: Any) -> None:
    install(systolic, "number")
    with pytest.raises(MisconfigurationException, match=r"expects objects of systolic\.Callback.*Received: 3"):
        trainer_of(systolic)
