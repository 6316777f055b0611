"""What callbacks do on the host in hooks inside the step happens in every step, with its values, as under Lightning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from trainer.three_ways import regression, run

IN_STEPS = ["on_before_zero_grad", "on_before_backward", "on_after_backward", "on_before_optimizer_step"]


def counting(base: Any) -> Any:
    """Counts, appends and keeps in every hook inside the step, with the help of other methods."""

    class Counting(base):
        def __init__(self) -> None:
            self.calls = dict.fromkeys(IN_STEPS, 0)
            self.order: list[str] = []
            self.losses: list[torch.Tensor] = []
            self.numbers: list[float] = []
            self.last_norm: Any = None
            self.total = torch.zeros(())
            self.seen_between: list[int] = []
            self.outputs: Any = None

        def note(self, name: str) -> None:
            self.calls[name] += 1
            self.order.append(name)

        def on_before_zero_grad(self, trainer: Any, module: Any, optimizer: Any) -> None:
            self.note("on_before_zero_grad")

        def on_before_backward(self, trainer: Any, module: Any, loss: torch.Tensor) -> None:
            self.note("on_before_backward")
            self.losses.append(loss.detach())
            self.numbers.append(loss.item())
            self.total += loss.detach()

        def on_after_backward(self, trainer: Any, module: Any) -> None:
            self.note("on_after_backward")
            self.last_norm = torch.stack([p.grad.norm() for p in module.parameters()]).norm()

        def on_before_optimizer_step(self, trainer: Any, module: Any, optimizer: Any) -> None:
            self.note("on_before_optimizer_step")

        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            # kept for this hook only: another object in every step
            self.outputs = outputs
            self.seen_between.append(len(self.order))

    return Counting()


def results(kind: str, callback: Callable[[Any], Any], **options: Any) -> Any:
    kept: list[Any] = []

    def make(base: Any) -> list[Any]:
        kept.append(callback(base))
        return kept

    outcome = run(kind, regression, callbacks=make, **options)
    return kept[0], outcome


@pytest.mark.parametrize("options", [{}, {"accumulate_grad_batches": 2}, {"devices": 2}], ids=str)
def test_a_callback_that_counts_and_keeps_losses_is_as_under_lightning(options: dict[str, Any]) -> None:
    ours, outcome = results("compiled", counting, **options)
    options.pop("devices", None)
    theirs, _ = results("lightning", counting, **options)
    assert ours.calls == theirs.calls
    assert ours.order == theirs.order
    assert ours.seen_between == theirs.seen_between
    assert ours.numbers == pytest.approx(theirs.numbers, rel=1e-5)
    torch.testing.assert_close(torch.stack([x.cpu() for x in ours.losses]), torch.stack(theirs.losses), rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(ours.total.cpu(), theirs.total, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(ours.last_norm.cpu(), theirs.last_norm, rtol=1e-5, atol=1e-7)
    assert len(outcome.trainer.compiles) <= 6, [c.reason for c in outcome.trainer.compiles]


def test_variables_around_an_assigned_hook_change_in_every_step() -> None:
    found = {}
    for kind in ("compiled", "lightning"):
        count, values = 0, []

        def make(base: Any, values: list[float] = values) -> Any:
            callback = base()

            def hook(trainer: Any, module: Any, loss: torch.Tensor) -> None:
                nonlocal count
                count += 1
                values.append(loss.item())

            callback.on_before_backward = hook
            return callback

        results(kind, make)
        found[kind] = (count, pytest.approx(values, rel=1e-5))
    assert found["compiled"][0] == found["lightning"][0] == 10
    assert found["lightning"][1].expected == found["compiled"][1]


def test_a_number_that_a_hook_reads_does_not_go_stale() -> None:
    def scaling(base: Any) -> Any:
        class Scaling(base):
            def __init__(self) -> None:
                self.factor = 1.0

            def on_after_backward(self, trainer: Any, module: Any) -> None:
                for parameter in module.parameters():
                    parameter.grad *= self.factor

            def on_train_batch_end(self, *_: Any) -> None:
                self.factor *= 0.5

        return Scaling()

    ours, outcome = results("compiled", scaling)
    theirs, expected = results("lightning", scaling)
    assert ours.factor == theirs.factor
    for name, value in expected.parameters.items():
        torch.testing.assert_close(outcome.parameters[name], value, rtol=1e-5, atol=1e-6)
