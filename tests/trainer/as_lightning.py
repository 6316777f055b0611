"""Run one scenario with real Lightning and with systolic, eager and compiled, and require the same account of what happened."""

from __future__ import annotations

import logging
import shutil
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from trainer.three_ways import QUIET, regression

import systolic as L

KINDS = ("lightning", "eager", "compiled")


@dataclass
class Package:
    """Lightning or systolic, as a scenario uses it.

    Attributes:
        kind: "lightning", "eager" or "compiled".
        L: the package itself.
        path: an empty directory.
    """

    kind: str
    L: Any
    path: Path

    def trainer(self, **options: Any) -> Any:
        """A Trainer on one core that prints nothing, and saves and logs only what `options` ask for."""
        own = {} if self.kind == "lightning" else {"compile": self.kind == "compiled"}
        defaults = {"accelerator": "cpu", "devices": 1, "max_epochs": 1, "default_root_dir": self.path, **QUIET}
        return self.L.Trainer(**{**defaults, **own, **options})

    def module(self, **methods: Any) -> Any:
        """The small regression, with methods replaced or added; the same weights in every package."""
        torch.manual_seed(0)
        return regression(self.L.LightningModule, **methods)()

    def checkpoint(self, **options: Any) -> Any:
        """A ModelCheckpoint in the scenario's directory."""
        return self.L.callbacks.ModelCheckpoint(dirpath=self.path / "checkpoints", **options)

    def warned(self, function: Callable[[], Any], *words: str) -> bool:
        """Whether a call warns with all of these words in one message."""
        for module in [one for name, one in sys.modules.items() if name.startswith("lightning.pytorch.")]:
            for owner in (module, *(one for one in vars(module).values() if isinstance(one, type))):
                if isinstance(cache := vars(owner).get("warning_cache"), set):
                    cache.clear()  # Lightning warns once in a process; another test may have come before
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            function()
        return any(all(word in str(warning.message) for word in words) for warning in caught)


def package(kind: str, path: Path) -> Package:
    """The package under test."""
    if kind != "lightning":
        return Package(kind, L, path)
    found = pytest.importorskip("lightning.pytorch")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    return Package(kind, found, path)


def accounts(scenario: Callable[[Package], Any], kinds: tuple[str, ...] = KINDS) -> list[Any]:
    """What a scenario returns with each package."""
    found = []
    for kind in kinds:
        path = Path(f"as_{kind}").absolute()
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found.append(scenario(package(kind, path)))
    return found


def require_same(scenario: Callable[[Package], Any], kinds: tuple[str, ...] = KINDS) -> Any:
    """Require equal accounts (numbers to 1e-5 relative); returns Lightning's."""
    theirs, *ours = accounts(scenario, kinds)
    for kind, account in zip(kinds[1:], ours, strict=True):
        assert _comparable(account) == _approximately(theirs), f"{kind}: {account}\nlightning: {theirs}"
    return theirs


def _comparable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _comparable(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_comparable(one) for one in value]
    return value.tolist() if isinstance(value, torch.Tensor) else value


def _approximately(value: Any, near_zero: float = 1e-7) -> Any:
    if isinstance(value, dict):
        return {key: _approximately(one) for key, one in value.items()}
    if isinstance(value, torch.Tensor):
        # a weight that ends near zero has the rounding of the sums that brought it there: here a tenth of what
        # torch.testing allows for float32
        return _approximately(value.tolist(), 1e-6)
    if isinstance(value, list | tuple):
        return [_approximately(one, near_zero) for one in value]
    return pytest.approx(value, rel=1e-5, abs=near_zero, nan_ok=True) if isinstance(value, float) else value


def refuses(function: Callable[[], Any], *errors: type[Exception]) -> bool:
    """Whether a call ends with one of these errors."""
    try:
        function()
    except errors:
        return True
    return False


def misconfiguration(package: Package) -> type[Exception]:
    """The package's MisconfigurationException."""
    if package.kind != "lightning":
        return L.MisconfigurationException
    return pytest.importorskip("lightning.pytorch.utilities.exceptions").MisconfigurationException
