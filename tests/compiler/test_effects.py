"""What a step leaves in Python objects is there after every call, and costs no compilations."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import systolic


class Recorder(nn.Module):
    """Leaves traces of every kind in its forward."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 4, bias=False), nn.BatchNorm1d(4), nn.Linear(4, 2))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.calls = 0
        self.total = 0.0
        self.losses: list[torch.Tensor] = []
        self.counts: dict[str, Any] = {"steps": 0}
        self.last: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.net(x)
        self.calls += 1
        self.total += 0.5
        self.seen += len(x)
        self.counts["steps"] += 2
        self.counts["mean"] = out.detach().mean()
        self.last = out.detach()
        self.losses.append(out.detach().square().sum())
        return out


def make() -> tuple[Recorder, Any]:
    torch.manual_seed(0)
    model = Recorder()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return model, step


def test_effects() -> None:
    (eager, eager_step), (compiled, step) = make(), make()
    jitted = systolic.jit(step)
    torch.manual_seed(1)
    for number, x in enumerate(torch.randn(6, 8, 4), 1):
        eager_step(x), jitted(x)
        assert (compiled.calls, compiled.total, compiled.counts["steps"]) == (number, number / 2, 2 * number)
        assert type(compiled.calls) is int
        assert compiled.seen.item() == 8 * number
        assert compiled.net[1].num_batches_tracked.item() == number
        assert len(compiled.losses) == number
        assert compiled.last is not None
        torch.testing.assert_close(compiled.last.cpu(), eager.last, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(compiled.counts["mean"].cpu(), eager.counts["mean"], rtol=1e-5, atol=1e-6)
    for want, got in zip(eager.losses, compiled.losses, strict=True):
        torch.testing.assert_close(got.cpu(), want, rtol=1e-5, atol=1e-6)
    assert len(jitted.compiles) <= 4, [c.reason for c in jitted.compiles]


def test_old_results_keep_their_values() -> None:
    model, step = make()
    jitted = systolic.jit(step)
    first = model.net[0].weight.detach().clone()
    losses = [jitted(x) for x in torch.randn(3, 4, 4)]
    values = [loss.item() for loss in losses]
    jitted(torch.ones(4, 4))
    assert [loss.item() for loss in losses] == values
    assert not torch.equal(model.net[0].weight.detach().cpu(), first)


def test_gradients_stay_when_the_step_leaves_them() -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)

    @systolic.jit
    def accumulate(x: torch.Tensor) -> torch.Tensor:
        loss = model(x).sum()
        loss.backward()
        return loss

    for number in range(1, 4):
        accumulate(torch.ones(5, 3))
        assert model.bias.grad is not None
        assert model.bias.grad.tolist() == [5.0 * number] * 2
    assert len(accumulate.compiles) == 2


def test_assigned_variables_of_the_closure() -> None:
    count, last = 0, torch.zeros(())

    @systolic.jit
    def step(x: torch.Tensor) -> torch.Tensor:
        nonlocal count, last
        count += 1
        last = x.sum() + last
        return last

    for number in range(1, 5):
        step(torch.ones(2))
        assert count == number
        assert last.item() == 2 * number


def stable(change: Any, kind: str = "sgd", steps: int = 8) -> int:
    """Run steps, with a change before each, and count the programs that later steps compiled."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1), nn.Linear(8, 2))
    model.factor = 1.0
    make_optimizer = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[kind]
    optimizer = make_optimizer(model.parameters(), lr=0.1)

    @systolic.jit
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y) * model.factor
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    counts = []
    for number in range(steps):
        change(number, model, optimizer)
        step(torch.randn(6, 4), torch.randint(0, 2, (6,)))
        counts.append(len(step.compiles))
    assert counts[3:] == counts[3:4] * (steps - 3), [c.reason for c in step.compiles]
    return counts[-1]


@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_later_steps_compile_nothing(kind: str) -> None:
    assert stable(lambda number, model, optimizer: None, kind) == 1


def test_learning_rate_is_variable_from_the_start() -> None:
    def change(number: int, model: Any, optimizer: Any) -> None:
        optimizer.param_groups[0]["lr"] = 0.1 / (number + 1)

    assert stable(change) == 1


def test_float_that_changes_becomes_variable() -> None:
    def change(number: int, model: Any, optimizer: Any) -> None:
        model.factor = 1.0 + number / 10

    assert stable(change) == 2


def test_betas_that_change_become_variable() -> None:
    def change(number: int, model: Any, optimizer: Any) -> None:
        optimizer.param_groups[0]["betas"] = (0.9 - number / 100, 0.999)

    assert stable(change, "adam") == 2


def test_known_shapes_are_not_compiled_again() -> None:
    step = systolic.jit(lambda x: x.sum())
    for size in (4, 4, 3, 4, 3):
        step(torch.ones(size))
    assert step.compile_count == 2


class Anchors(nn.Module):
    """Makes a list anew of what is in it, as torchvision's anchors are in every forward."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(4, 2)
        self.cells = [torch.full((2,), float(n)) for n in range(3)]
        self.sizes = [1, 2]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.cells = [cell.to(dtype=x.dtype) for cell in self.cells]
        self.sizes = [n * 1 for n in self.sizes]
        return self.net(x) * self.cells[1] * self.sizes[1]


def test_a_list_made_anew_of_the_same_elements_asks_for_no_trace() -> None:
    model = Anchors()
    step = systolic.jit(lambda x: model(x).sum())
    for number in range(1, 5):
        x = torch.randn(3, 4)
        torch.testing.assert_close(step(x), (model.net(x) * model.cells[1] * model.sizes[1]).sum())
        assert len(step.compiles) == 1, [one.reason for one in step.compiles]
        if number == 3:  # of tensors of the same kind
            model.cells = [cell + 1 for cell in model.cells]
