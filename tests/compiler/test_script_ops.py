"""Ops that TorchScript's code calls and PyTorch's Python does not equal eager PyTorch, or are refused by name."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from compiler.step_check import check_step
from torch import nn

import systolic
from systolic.compiler import UnsupportedOpError

BATCH, POSITIONS, SIZE, HEADS = 3, 5, 8, 2


def some(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def masks() -> dict[str, tuple[torch.Tensor | None, int | None]]:
    upper = torch.ones(POSITIONS, POSITIONS, dtype=torch.bool).triu(1)
    ends = torch.arange(POSITIONS)[None] >= torch.tensor([5, 2, 4])[:, None]
    return {"none": (None, None), "positions": (upper, 0), "keys": (ends, 1)}


def require_same(function: Callable[..., Any], *inputs: torch.Tensor) -> None:
    with torch.no_grad():
        expected, got = function(*inputs), systolic.jit(function)(*inputs)
    for ours, theirs in zip(got, expected, strict=True):
        torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.thin(3)
@pytest.mark.parametrize("mask", ["none", "positions", "keys"])
@pytest.mark.parametrize("norm_first", [False, True])
def test_layer_of_an_encoder(mask: str, norm_first: bool) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(SIZE, HEADS, 16, 0.0, "gelu" if norm_first else "relu", norm_first=norm_first).eval()
    attention = layer.self_attn
    weights = [attention.in_proj_weight, attention.in_proj_bias, attention.out_proj.weight, attention.out_proj.bias]
    rest = [t for part in (layer.norm1, layer.norm2, layer.linear1, layer.linear2) for t in (part.weight, part.bias)]
    given = [t.detach() for t in [*weights, *rest]]
    of_heads, kind = masks()[mask]

    def encode(x: torch.Tensor, *given: torch.Tensor) -> list[torch.Tensor]:
        settings = (norm_first, norm_first, 1e-5)
        fused = torch._transformer_encoder_layer_fwd
        return [fused(x, SIZE, HEADS, *given[:4], *settings, *given[4:], of_heads, kind)]

    require_same(encode, some(BATCH, POSITIONS, SIZE), *given)


@pytest.mark.thin(3)
@pytest.mark.parametrize("mask", ["none", "positions", "keys"])
@pytest.mark.parametrize(("need_weights", "average"), [(False, True), (True, True), (True, False)])
def test_attention_with_weights(mask: str, need_weights: bool, average: bool) -> None:
    of_heads, kind = masks()[mask]
    given = [some(3 * SIZE, SIZE, seed=1), some(3 * SIZE, seed=2), some(SIZE, SIZE, seed=3), some(SIZE, seed=4)]

    def attend(x: torch.Tensor, *given: torch.Tensor) -> list[torch.Tensor]:
        out, weights = torch._native_multi_head_attention(x, x, x, SIZE, HEADS, *given, of_heads, need_weights, average, kind)
        return [out, weights] if need_weights else [out]

    require_same(attend, some(BATCH, POSITIONS, SIZE), *given)


class Attends(nn.Module):
    """Attention as TorchScript calls it, of one projection for all three."""

    def __init__(self, mask: torch.Tensor | None, causal: bool, scale: float | None) -> None:
        super().__init__()
        self.project, self.mask, self.causal, self.scale = nn.Linear(SIZE, 3 * SIZE), mask, causal, scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = self.project(x).reshape(x.size(0), x.size(1), 3, 2, -1).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(heads[0], heads[1], heads[2], self.mask, 0.0, self.causal, scale=self.scale)


CHOICE = some(POSITIONS, POSITIONS, seed=5) > -0.8
ATTENTION = {
    "plain": (None, False, None),
    "causal": (None, True, None),
    "scaled": (None, True, 0.7),
    "choice": (CHOICE, False, None),
    "added": (some(BATCH, 1, POSITIONS, POSITIONS, seed=6), False, 0.2),
}


@pytest.mark.thin(2)
@pytest.mark.parametrize("case", ATTENTION)
def test_gradients_of_attention(case: str) -> None:
    torch.manual_seed(0)
    module = script(Attends(*ATTENTION[case]))
    check_step(module, some(BATCH, POSITIONS, SIZE).requires_grad_(), module=module)


class Recurrent(nn.Module):
    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.network = nn.LSTM(SIZE, 4, **settings)

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        y, (hidden, memory) = self.network(x)
        return [y, hidden, memory]


@pytest.mark.thin(2)
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"batch_first": True, "num_layers": 2},
        {"bidirectional": True},
        {"bias": False, "bidirectional": True, "num_layers": 2},
    ],
)
def test_layers_of_lstms(settings: dict[str, Any]) -> None:
    torch.manual_seed(0)
    module = script(Recurrent(**settings))
    compiled = check_step(module, some(BATCH, POSITIONS, SIZE).requires_grad_(), module=module)
    chained = [node for node in compiled.graph().nodes if node.target is torch.ops.aten.sigmoid.default]
    assert not chained, "one loop, not a chain of its steps"


def script(module: nn.Module) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.script(module)


def test_what_has_no_lowering_is_named_where_torchscript_calls_it() -> None:
    class Bessel(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.special.bessel_j0(x)

    module = script(Bessel())
    with pytest.raises(UnsupportedOpError, match=r"aten.special_bessel_j0.default .*\n.*test_script_ops.py:\d+ in"):
        systolic.jit(lambda x: F.relu(module(x)))(some(3))
