"""Model FLOPs: counted by hand, and against PyTorch's own counter."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import systolic
from systolic.compiler import model_flops


def counted(module: nn.Module, x: torch.Tensor) -> int:
    """Of a forward with its backward."""

    @systolic.jit
    def step(x: torch.Tensor) -> Any:
        return torch.autograd.grad(module(x).square().mean(), list(module.parameters()))

    step(x)
    found = model_flops(step.graph())
    step.release()
    return found


def pytorchs(module: nn.Module, x: torch.Tensor) -> int:
    with FlopCounterMode(display=False) as counter:
        module(x).square().mean().backward()
    return counter.get_total_flops()


def test_a_linear_layer_by_hand() -> None:
    # forward, and backward to the weight; nobody asks for the gradient of the input
    assert counted(nn.Linear(16, 4), torch.rand(8, 16)) == 2 * (2 * 8 * 16 * 4)


def test_convolutions_as_pytorch_counts_them() -> None:
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3, stride=2, groups=2))
    x = torch.rand(2, 3, 16, 16)
    assert counted(module, x) == pytorchs(module, x) > 0


def test_what_is_computed_again_counts_once() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 16))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layers(x)

    class Again(Block):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: Any = checkpoint(self.layers, x, use_reentrant=False)
            return found

    x = torch.rand(8, 16)
    assert counted(Again(), x) == counted(Block(), x) > 0


def test_attention_counts_every_score_and_twice_that_backward() -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.project = nn.Linear(8, 24)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            query, key, value = self.project(x).view(2, 16, 3, 2, 4).permute(2, 0, 3, 1, 4)
            return F.scaled_dot_product_attention(query, key, value, is_causal=True)

    projection = 2 * (2 * 2 * 16 * 8 * 24)
    # for each of 2 samples and 2 heads: scores and their weighted sum, 16 x 16 x 4 each
    attention = 3 * 2 * (2 * 2 * (2 * 16 * 16 * 4))
    assert counted(Attention(), torch.rand(2, 16, 8)) == projection + attention


def test_recurrent_layers_count_every_time_step() -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(8, 16, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.lstm(x)[0]

    # input and hidden state to four gates of 16, at each of 5 times, for 3 samples
    forward = 2 * 3 * 5 * (8 + 16) * 4 * 16
    found = counted(Recurrent(), torch.rand(3, 5, 8))
    # backward: the same again for the weights, and for the hidden state
    assert found == forward + forward + 2 * 3 * 5 * 16 * 4 * 16
