"""Hooks put callbacks into `trainer.callbacks`, take them out, and replace them: who is called is the same as under Lightning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from trainer.as_lightning import Package, require_same
from trainer.three_ways import loader

HOOKS = (
    "setup", "on_fit_start", "on_train_start", "on_train_epoch_start", "on_train_batch_start", "on_before_zero_grad",
    "on_train_batch_end", "on_train_epoch_end", "on_train_end", "on_fit_end", "on_save_checkpoint", "on_exception", "teardown",
)  # fmt: skip


def named(package: Package, name: str, called: list[str], hooks: tuple[str, ...] = HOOKS) -> Any:
    """A callback that notes its hooks."""

    def noting(hook: str) -> Callable[..., None]:
        def note(self: Any, *args: Any, **kwargs: Any) -> None:
            called.append(f"{name}.{hook}")

        return note

    methods = {hook: noting(hook) for hook in hooks}
    return type(name, (package.L.Callback,), {**methods, "state_key": name})()


BETWEEN = tuple(hook for hook in HOOKS if hook != "on_before_zero_grad")
Change = Callable[[Any, Any], None]


def append(trainer: Any, callback: Any) -> None:
    trainer.callbacks.append(callback)


def replace_all(trainer: Any, callback: Any) -> None:
    trainer.callbacks = [*trainer.callbacks, callback]


def take_the_place(trainer: Any, callback: Any) -> None:
    trainer.callbacks[-1] = callback


def fitted(package: Package, moment: str, change: Change, hooks: tuple[str, ...] = HOOKS) -> list[str]:
    """Which hooks are called, in which order, where one of a callback changes the list; then those of a second fit."""
    called: list[str] = []
    late = named(package, "Late", called, hooks)

    def changing(self: Any, trainer: Any, *args: Any, **kwargs: Any) -> None:
        called.append(f"First.{moment}")
        if late not in trainer.callbacks:
            change(trainer, late)

    first = type("First", (package.L.Callback,), {moment: changing})()
    trainer = package.trainer(callbacks=[first, named(package, "Other", called, BETWEEN)], max_epochs=2)
    module = package.module()
    trainer.fit(module, loader(16, 8))
    called.append("second")
    trainer.fit_loop.max_epochs = 3
    trainer.fit(module, loader(16, 8))
    return called


@pytest.mark.parametrize("change", [append, replace_all, take_the_place])
@pytest.mark.parametrize("moment", ["setup", "on_train_start", "on_train_epoch_start", "on_train_epoch_end"])
def test_hooks_are_called_from_then_on(moment: str, change: Change) -> None:
    hooks = HOOKS if moment == "setup" else BETWEEN
    called = require_same(lambda package: fitted(package, moment, change, hooks))
    assert called.count("Late.on_train_batch_end") > 1
    assert called.count("Late.teardown") == 2


def test_one_that_is_taken_out_is_not_called_any_more() -> None:
    def scenario(package: Package) -> Any:
        called: list[str] = []
        other = named(package, "Other", called)

        class First(package.L.Callback):
            def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
                trainer.callbacks.remove(other)

        trainer = package.trainer(callbacks=[First(), other])
        trainer.fit(package.module(), loader(16, 8))
        return called

    called = require_same(scenario)
    assert "Other.on_train_batch_end" in called
    assert "Other.on_train_end" not in called


def test_it_logs_and_its_state_is_restored() -> None:
    def scenario(package: Package) -> Any:
        class Late(package.L.Callback):
            count = 0

            def on_train_batch_end(self, trainer: Any, pl_module: Any, *args: Any) -> None:
                self.count += 1
                pl_module.log("count", float(self.count))

            def state_dict(self) -> dict[str, int]:
                return {"count": self.count}

            def load_state_dict(self, state_dict: dict[str, int]) -> None:
                self.count = state_dict["count"]

        class First(package.L.Callback):
            def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
                self.late = Late()
                trainer.callbacks.append(self.late)

        found: list[Any] = []
        for epochs, path in ((1, None), (2, package.path / "a.ckpt")):
            first = First()
            trainer = package.trainer(callbacks=[first], max_epochs=epochs)
            trainer.fit(package.module(), loader(16, 8), ckpt_path=path)
            trainer.save_checkpoint(package.path / "a.ckpt")
            found.append([first.late.count, float(trainer.callback_metrics["count"])])
        return found

    assert require_same(scenario) == [[2, 2.0], [4, 4.0]]


def test_one_of_lightnings_is_taken_too() -> None:
    lightning = pytest.importorskip("lightning.pytorch")

    class Late(lightning.Callback):
        count = 0

        def on_train_batch_end(self, trainer: Any, pl_module: Any, *args: Any) -> None:
            self.count += 1

    def scenario(package: Package) -> int:
        late = Late()

        class First(package.L.Callback):
            def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
                trainer.callbacks.append(late)

        package.trainer(callbacks=[First()]).fit(package.module(), loader(16, 8))
        return late.count

    assert require_same(scenario) == 2


def test_a_hook_inside_the_step_comes_too_late_for_a_program(tmp_path: Any) -> None:
    import systolic

    package = Package("compiled", systolic, tmp_path)
    called: list[str] = []

    class First(systolic.Callback):
        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            trainer.callbacks.append(named(package, "Late", called))

    with pytest.raises(systolic.MisconfigurationException, match="Late was put into trainer.callbacks after .*on_before_zero"):
        package.trainer(callbacks=[First()], max_epochs=2).fit(package.module(), loader(16, 8))
