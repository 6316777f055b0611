"""Models that have the length before the batch: no activation is fetched to all devices, and numbers are eager PyTorch's."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import jax
import pytest
import torch
from program_text import optimized_programs
from torch import nn

import systolic

T = torch.Tensor
CORES, BATCH, LENGTH, WIDTH = 8, 16, 6, 32


class LengthFirst(nn.Module):
    """Batches come batch first; inside, the length is."""

    def __init__(self, layer: nn.Module, times: int = 1) -> None:
        super().__init__()
        self.layer = layer
        self.times = times

    def forward(self, x: T) -> T:
        x = x.permute(1, 0, 2) if self.times == 2 else x.transpose(0, 1)
        for _ in range(self.times):
            x = self.layer(x)
        return x.transpose(0, 1)


class Across(nn.Module):
    """Attention between two sequences of different lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 4, batch_first=True)

    def forward(self, x: T) -> T:
        return self.attention(x, x[:, : LENGTH // 2], x[:, : LENGTH // 2])[0]


class Rows(nn.Module):
    """Uses the matrix of rows otherwise, too: nothing may be reordered there."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: T) -> T:
        rows = self.layer(x.transpose(0, 1).reshape(-1, WIDTH))
        weights = torch.arange(len(rows), dtype=rows.dtype)[:, None]
        return (rows * weights.cos()).reshape(LENGTH, -1, WIDTH).transpose(0, 1)


class Recurrent(nn.Module):
    """The results of two layers that run in both directions."""

    def __init__(self, network: type[nn.RNNBase], **options: Any) -> None:
        super().__init__()
        self.network = network(WIDTH, WIDTH // 2, 2, bidirectional=True, **options)

    def forward(self, x: T) -> T:
        return self.network(x)[0]


def encoder(**options: Any) -> nn.Module:
    return nn.TransformerEncoderLayer(WIDTH, 4, 64, dropout=0.0, **options)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "batch first": lambda: encoder(batch_first=True),
    "as long as the batch is large": lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), encoder(batch_first=True)),
    "without bias": lambda: encoder(batch_first=True, bias=False),
    "length first": lambda: LengthFirst(encoder()),
    "two layers": lambda: LengthFirst(encoder(norm_first=True), 2),
    "linear": lambda: LengthFirst(nn.Sequential(nn.Linear(WIDTH, 8), nn.GELU(), nn.Linear(8, WIDTH))),
    "two sequences": Across,
    "LSTM": lambda: Recurrent(nn.LSTM, batch_first=True),
    "LSTM with a projection": lambda: nn.Sequential(Recurrent(nn.LSTM, batch_first=True, proj_size=8), nn.Linear(16, WIDTH)),
    "GRU, length first": lambda: LengthFirst(Recurrent(nn.GRU)),
    "rows used otherwise": Rows,
}
GATHER = {"rows used otherwise"}
SQUARE = {"as long as the batch is large"}


def train(model: nn.Module, batches: list[T], wrap: Callable[[Any], Any]) -> list[float]:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step(x: T) -> T:
        optimizer.zero_grad()
        loss = (model(x) - x.roll(1, 1)).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    function = wrap(step)
    return [float(function(batch).detach()) for batch in batches]


@pytest.mark.thin(5)
@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("name", MODELS)
def test_steps_equal_eager_and_gather_no_activation(name: str) -> None:
    torch.manual_seed(0)
    model = MODELS[name]()
    other = copy.deepcopy(model)
    batches = [torch.randn(BATCH, BATCH if name in SQUARE else LENGTH, WIDTH) for _ in range(4)]
    with optimized_programs() as programs:
        losses = train(model, batches, lambda step: systolic.jit(step, devices=jax.devices()[:CORES]))
    assert losses == pytest.approx(train(other, batches, lambda step: step), rel=1e-5)
    for (path, ours), theirs in zip(model.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-4, atol=1e-6, msg=lambda text, path=path: f"{path}: {text}")
    gathers = [line for text in programs for line in re.findall(r"= .* all-(?:gather|to-all)\(", text)]
    assert bool(gathers) == (name in GATHER), gathers
