"""Updates of parameters that were copied in the graph are those that a trace of each makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn
from torch.optim.optimizer import Optimizer

import systolic
from systolic.compiler.capture import _alike_updates
from systolic.compiler.driver import JitFunction

Make = Callable[[Any], Optimizer]
OPTIMIZERS: dict[str, Make] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "damped": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.1, maximize=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adam with more": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True, weight_decay=0.1, maximize=True),
    "adam with a tensor": lambda p: torch.optim.Adam(p, lr=torch.tensor(0.01)),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "adamax": lambda p: torch.optim.Adamax(p, lr=0.01, weight_decay=0.1),
    "nadam": lambda p: torch.optim.NAdam(p, lr=0.01, decoupled_weight_decay=True, weight_decay=0.1),
    "radam": lambda p: torch.optim.RAdam(p, lr=0.01),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, centered=True, momentum=0.5),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01, lr_decay=0.1),
    "adadelta": lambda p: torch.optim.Adadelta(p, lr=0.5),
    "asgd": lambda p: torch.optim.ASGD(p, lr=0.01),
    "rprop": lambda p: torch.optim.Rprop(p, lr=0.01),
    "adafactor": lambda p: torch.optim.Adafactor(p, lr=0.01),
}
NOT_COPIED = ("adafactor", "adagrad", "asgd")  # of rows and columns, of a number that is a parameter's own, of a detached one


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))


class Odd(nn.Module):
    """Parameters of many kinds: of no dimension, of another dtype, that look at one memory, channels last, without gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.scales = nn.ParameterList([nn.Parameter(torch.tensor(float(i + 1))) for i in range(3)])
        self.exact = nn.ParameterList([nn.Parameter(torch.ones(3, dtype=torch.float64)) for _ in range(2)])
        flat = torch.linspace(0.1, 1.0, 12)
        self.parts = nn.ParameterList([nn.Parameter(flat[3 * i : 3 * i + 3]) for i in range(4)])
        kernels = [nn.Conv2d(2, 2, 3, padding=1, bias=False).to(memory_format=torch.channels_last) for _ in range(3)]  # pyright: ignore[reportCallIssue]
        self.kernels = nn.ModuleList([*kernels, nn.Conv2d(2, 2, 3, padding=1, bias=False)])
        self.frozen = nn.Parameter(torch.ones(3), requires_grad=False)
        self.unused = nn.Parameter(torch.ones(3))
        self.last = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        image = torch.stack([x, x.flip(1)]).reshape(1, 2, -1, 4)
        for kernel in self.kernels:
            image = torch.tanh(kernel(image))
        row = sum(self.parts) * self.frozen + sum(self.exact).float()  # type: ignore[call-overload]
        return self.last(x) * row * self.scales[0] + self.last(image.mean((0, 1, 2)) * self.scales[1]) * self.scales[2]


class _Both(torch.autograd.Function):
    """Two weights' product with something, whose gradients are views of memory that is written to once they are made."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * (one + other)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (x,) = ctx.saved_tensors
        size = x.shape[-1]
        both = torch.zeros(2 * size)
        one, other = both[:size], both[size:]
        both += (gradient * x).sum(0).repeat(2)
        return None, one, other


class Written(nn.Module):
    """Weights whose gradients are views that do not know yet what was written to their memory."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList([nn.Parameter(torch.linspace(-1.0, 1.0, 4)) for _ in range(4)])
        self.last = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for one, other in zip(self.weights[::2], self.weights[1::2], strict=True):
            x = _Both.apply(x, one, other)
        return self.last(x)


class Replaced(nn.Module):
    """Weights that get other memory in each step: a network whose weights are clipped, a network that is sent to a device."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.last = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number, layer in enumerate(self.layers):
            layer.to(x.device)
            layer.weight.data = layer.weight.data.clamp(-0.4, 0.4) if number else layer.weight.data
            x = torch.tanh(layer(x))
        return self.last(x)


def _trained(make: Make, module: nn.Module) -> tuple[list[torch.Tensor], Any]:
    optimizer = make(module.parameters())

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(module(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = systolic.jit(step)
    draw = torch.Generator().manual_seed(1)
    for _ in range(2):
        run(torch.randn(6, 4, generator=draw), torch.randint(0, 3, (6,), generator=draw))
    values = [*module.parameters(), *(v for s in optimizer.state.values() for v in s.values() if isinstance(v, torch.Tensor))]
    return [value.detach().cpu().clone() for value in values], run


def _ops(compiled: JitFunction[..., Any]) -> list[Any]:
    """The nodes of the program that ran last, with numbers for names."""
    nodes = list(compiled.graph().nodes)
    number = {node: place for place, node in enumerate(nodes)}
    return [(n.op, str(n.target), fx.map_arg((n.args, n.kwargs), lambda m: number[m]), _kind(n.meta.get("val"))) for n in nodes]


def _kind(value: object) -> Any:
    return (value.shape, value.stride(), value.dtype) if isinstance(value, torch.Tensor) else type(value)


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many parameters' updates were copied, each with its number of nodes."""
    counted: list[int] = []
    copy = _alike_updates._Template.copy_for

    def counting(self: Any, *args: Any) -> None:
        counted.append(len(self.nodes))
        copy(self, *args)

    monkeypatch.setattr(_alike_updates._Template, "copy_for", counting)
    return counted


@pytest.mark.thin(12)
@pytest.mark.parametrize("make_module", [_mlp, Odd, Written, Replaced])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_graph_is_the_same(
    name: str, make_module: Callable[[], nn.Module], copies: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    results: dict[bool, Any] = {}
    for copying in (True, False):
        torch.manual_seed(1)
        module = make_module()
        with monkeypatch.context() as patch:
            if not copying:
                patch.setattr(_alike_updates, "single_tensor_updates", list)
            copies.clear()
            results[copying] = _trained(OPTIMIZERS[name], module)
        assert (len(copies) > 0) == (copying and name not in NOT_COPIED)
    if make_module not in (Written, Replaced):  # whose views are made anew a little earlier
        assert _ops(results[True][1]) == _ops(results[False][1])
    for value, other in zip(results[True][0], results[False][0], strict=True):
        assert torch.equal(value, other)
