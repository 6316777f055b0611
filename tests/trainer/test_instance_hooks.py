"""Hooks that one callback or one module has, and its class has not, are called as under Lightning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest
from trainer.three_ways import loader, quiet_trainer, regression, run

import systolic as L

NAMES = ["setup", "on_fit_start", "on_train_start", "on_train_batch_start", "on_train_batch_end", "on_train_epoch_end"]
MODULE_NAMES = ["on_fit_start", "on_train_epoch_start", "on_train_batch_end", "on_train_end"]


def assigned(base: Any, seen: list[str]) -> Any:
    """A callback whose hooks are attributes of the instance."""
    callback = base()
    for name in NAMES:
        setattr(callback, name, lambda *_, name=name, **__: seen.append(name))
    return callback


def decorated(base: Any, seen: list[str]) -> Any:
    """A callback whose methods were wrapped after it was made."""

    class Empty(base):
        def on_train_start(self, trainer: Any, module: Any) -> None:
            seen.append("own")

    callback = Empty()
    for name in NAMES:
        setattr(callback, name, noting(getattr(callback, name), name, seen))
    return callback


def noting(hook: Callable[..., Any], name: str, seen: list[str]) -> Callable[..., Any]:
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        seen.append(name)
        return hook(*args, **kwargs)

    return wrapped


@pytest.mark.parametrize("make", [assigned, decorated])
def test_hooks_of_a_callback_instance_are_called_as_under_lightning(make: Callable[[Any, list[str]], Any]) -> None:
    found: dict[str, list[str]] = {}
    for kind in ("compiled", "lightning"):
        seen = found[kind] = []
        run(kind, regression, callbacks=lambda base, seen=seen: [make(base, seen)], max_epochs=1)
    assert found["compiled"] == found["lightning"]
    assert set(NAMES) <= set(found["compiled"])


def test_hooks_of_a_module_instance_are_called_as_under_lightning() -> None:
    found: dict[str, list[str]] = {}
    for kind in ("compiled", "lightning"):
        seen = found[kind] = []

        def build(base: Any, seen: list[str] = seen) -> Any:
            def make() -> Any:
                module = regression(base)()
                for name in MODULE_NAMES:
                    module.__dict__[name] = lambda *_, name=name: seen.append(name)
                return module

            return make

        run(kind, build, max_epochs=1)
    assert found["compiled"] == found["lightning"]
    assert set(MODULE_NAMES) <= set(found["compiled"])


def test_a_mock_of_a_callback_is_called() -> None:
    callback = Mock(spec=L.Callback)
    quiet_trainer(callbacks=[callback], limit_train_batches=3).fit(regression(L.LightningModule)(), loader())
    calls = {name: getattr(callback, name).call_count for name in ("setup", "on_train_batch_end", "on_train_end", "teardown")}
    assert calls == {"setup": 1, "on_train_batch_end": 3, "on_train_end": 1, "teardown": 1}
