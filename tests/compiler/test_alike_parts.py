"""Layers that do the same are lowered as one function that the program calls: same numbers, same names, same errors."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from named_steps import op_names, training_step
from torch import nn
from torch.utils.checkpoint import checkpoint

import systolic
from systolic.compiler.driver import JitFunction, _step_function

LAYERS = 4
WIDTH = 16


class Block(nn.Module):
    """Scores of pairs, a dropout, and two linear layers."""

    def __init__(self, drop: float = 0.0) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.wide = nn.Linear(WIDTH, 2 * WIDTH)
        self.back = nn.Linear(2 * WIDTH, WIDTH)
        self.dropout = nn.Dropout(drop)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        own = self.norm(x)
        x = x + (own @ own.mT).softmax(-1) @ own
        return x + self.dropout(self.back(F.gelu(self.wide(x))))


class Table(nn.Module):
    """Looks rows up in a table of its own, which is checked."""

    def __init__(self, rows: int = 5) -> None:
        super().__init__()
        self.table = nn.Embedding(rows, WIDTH)
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.linear(x + self.table(places))).gather(2, places[..., None].expand(*places.shape, WIDTH))


class Images(nn.Module):
    """A residual block of a ResNet, with statistics of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(4, 4, 3, padding=1, bias=False) for _ in range(2))
        self.norm1, self.norm2 = nn.BatchNorm2d(4), nn.BatchNorm2d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x + self.norm2(self.second(F.relu(self.norm1(self.first(x))))))


class Recurrent(nn.Module):
    """A recurrent layer: a JAX function whose pullback the backward pass takes."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTM(WIDTH, WIDTH, batch_first=True)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x + self.cell(x)[0])


class Stack(nn.Module):
    """Layers, and what they gave on their way."""

    def __init__(
        self, make: Callable[[], nn.Module], *, given: str = "rows", kept: bool = False, again: bool = False, more: int = 0
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(make() for _ in range(LAYERS + more))
        self.given, self.kept, self.again = given, kept, again

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.given == "images":
            x = x[:, None].expand(-1, 4, -1, -1)
        places = (x[..., 0].detach().abs() * 2).long().clamp(0, 4)
        found = []
        for layer in self.layers:
            given = (x, places) if self.given == "places" else (x,)
            x = checkpoint(layer, *given, use_reentrant=False) if self.again else layer(*given)
            found.append(x)
        return torch.stack(found).mean(0) if self.kept else x


class Lookups(nn.Module):
    """Layers that look up what they are given."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Table() for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places = x[..., 0].detach().long()
        for layer in self.layers:
            x = layer(x, places)
        return x


MODELS: dict[str, Callable[[], Stack]] = {
    "blocks": lambda: Stack(Block),
    "dropout": lambda: Stack(lambda: Block(0.3)),
    "kept": lambda: Stack(Block, kept=True),
    "again": lambda: Stack(Block, again=True),
    "again with dropout": lambda: Stack(lambda: Block(0.3), again=True),
    "tables": lambda: Stack(Table, given="places", more=2),
    "images": lambda: Stack(Images, given="images"),
    "recurrent": lambda: Stack(Recurrent, more=2),
}


def step_of(model: nn.Module, devices: int = 1) -> JitFunction[[torch.Tensor], torch.Tensor]:
    return training_step(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), devices)


def trained(model: nn.Module, devices: int = 1) -> tuple[list[float], list[torch.Tensor], str]:
    """Losses of three steps, the state after them, and the program."""
    systolic.seed_everything(3)
    step = step_of(model, devices)
    x = torch.randn(8, 6, WIDTH, generator=torch.Generator().manual_seed(1))
    losses = [float(step(x * scale)) for scale in (1.0, 0.5, 2.0)]
    return losses, [value.detach().cpu().clone() for value in model.state_dict().values()], step.stablehlo()


def eager(model: nn.Module) -> tuple[list[float], list[torch.Tensor]]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x = torch.randn(8, 6, WIDTH, generator=torch.Generator().manual_seed(1))
    losses = []
    for scale in (1.0, 0.5, 2.0):
        optimizer.zero_grad()
        loss = model(x * scale).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses, list(model.state_dict().values())


def calls(program: str) -> int:
    return len(re.findall(r"call @layer", program))


def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on every node is lowered by itself."""
    monkeypatch.setattr(_step_function, "with_alike_parts", lambda graph, _apart: list(graph.nodes))


@pytest.mark.parametrize(("name", "devices"), [*((name, 1) for name in MODELS), ("dropout", 4), ("tables", 4), ("images", 4)])
def test_the_numbers_are_those_of_layers_lowered_one_by_one(name: str, devices: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = MODELS[name]()
    losses, state, program = trained(copy.deepcopy(model), devices)
    assert calls(program) >= 2 * (LAYERS - 2)
    apart(monkeypatch)
    losses_apart, state_apart, program_apart = trained(copy.deepcopy(model), devices)
    assert not calls(program_apart)
    assert len(program) < 0.9 * len(program_apart)
    assert losses == pytest.approx(losses_apart, rel=1e-6)
    for value, value_apart in zip(state, state_apart, strict=True):
        torch.testing.assert_close(value, value_apart, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", [name for name in MODELS if "dropout" not in name])
def test_the_numbers_are_pytorchs(name: str) -> None:
    torch.manual_seed(0)
    model = MODELS[name]()
    losses, state, _ = trained(copy.deepcopy(model))
    losses_eager, state_eager = eager(model)
    assert losses == pytest.approx(losses_eager, rel=1e-5)
    for value, value_eager in zip(state, state_eager, strict=True):
        torch.testing.assert_close(value, value_eager, rtol=1e-4, atol=1e-5)


def test_every_layer_keeps_its_name() -> None:
    torch.manual_seed(0)
    step = step_of(Stack(Block))
    step(torch.randn(8, 6, WIDTH))
    names = {f"{name}/" for name in op_names(step)}
    for number in range(LAYERS):
        for direction in ("", "backward/"):
            place = f"{direction}model.layers.{number}"
            written = (f"{place}.wide/", f"{place}/jit(layer)/.wide/")
            assert any(name.startswith(written) for name in names), (place, names)


def test_an_error_names_the_line_of_its_layer() -> None:
    torch.manual_seed(0)
    step = step_of(Lookups(LAYERS + 2))
    float(step(torch.ones(8, 6, WIDTH)))
    assert calls(step.stablehlo())
    with pytest.raises(
        systolic.OutOfRangeError, match=r"embedding: index out of range. Expected: 0 to 4. Received: 9"
    ) as caught:
        float(step(torch.full((8, 6, WIDTH), 9.0)))
    assert "self.table(places)" in str(caught.value)
