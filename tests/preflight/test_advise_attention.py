"""Advice on attention that no kernel computes, on steps compiled by the real TPU compiler."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from trainer.runs import trainer

import systolic as L
from systolic.preflight import Advice

pytest.importorskip("libtpu")

HEADS, WIDTH = 2, 128


class Layer(nn.Module):
    """Self-attention with its options."""

    def __init__(self, options: Any) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.options = options

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(2, (3, HEADS, WIDTH // HEADS)).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v, **self.options(x.shape[1])).transpose(1, 2).flatten(2)


LINE = f"{__file__}:{Layer.forward.__code__.co_firstlineno + 2}"


class Attends(L.LightningModule):
    """Two layers."""

    def __init__(self, options: Any) -> None:
        super().__init__()
        self.net = nn.Sequential(Layer(options), Layer(options))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.net(batch[0]).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def advice(options: Any, length: int = 128, slice: str = "v5litepod-1", module: type[Attends] = Attends) -> Advice | None:
    loader = DataLoader(TensorDataset(torch.rand(4, length, WIDTH)), batch_size=4)
    report = trainer().preflight(module(options), loader, slice=slice)
    return next((one for one in report.advice if one.topic == "attention"), None)


CAUSE = "a trained mask that heads, queries or keys share, or that is too large"


class Biased(Attends):
    """Two layers whose scores get trained numbers added, the same in all heads."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self.bias = nn.Parameter(torch.zeros(128, 128))
        for layer in self.net:
            layer.options = lambda n: {"attn_mask": self.bias, **options(n)}  # type: ignore[union-attr]


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    ("module", "options", "length", "slice", "cause", "remedy"),
    [
        (Biased, lambda n: {"dropout_p": 0.1}, 128, "v5litepod-1", CAUSE, "where it has the shape (1 or batch, heads, length"),
        (Attends, lambda n: {"is_causal": True}, 48, "v5litepod-1", "lengths of 48 x 48", "nothing to change"),
        (Attends, lambda n: {"is_causal": True}, 128, "v3-8", "a chip without kernels", "v4 and later chips"),
    ],
    ids=["trained mask", "length", "chip"],
)
def test_what_keeps_attention_from_the_kernel(
    module: type[Attends], options: Any, length: int, slice: str, cause: str, remedy: str
) -> None:
    found = advice(options, length, slice, module)
    assert found is not None
    assert remedy in found.text
    scores, share = found.evidence
    assert scores.name == f"model.net.0 ({LINE}), 2 times: {cause}; scores of one"
    # a batch of 4 on each core, float32
    assert (scores.value, scores.unit) == (4 * HEADS * length**2 * 4, "bytes")
    assert share.name == f"predicted time of {LINE}"
    assert 0 < share.value < 100  # type: ignore[operator]


def test_several_obstacles_are_all_named() -> None:
    found = advice(lambda n: {}, 128, "v3-8", Biased)
    assert found is not None
    assert f"{CAUSE} and a chip without kernels; scores" in found.evidence[0].name


@pytest.mark.parametrize(
    "options",
    [
        lambda n: {"is_causal": True},
        lambda n: {"attn_mask": torch.ones(n, n, dtype=torch.bool).tril()},
        lambda n: {"attn_mask": torch.zeros(n, n), "dropout_p": 0.1},
    ],
    ids=["causal", "mask", "added numbers and dropout"],
)
@pytest.mark.parametrize("length", [128, 100])
def test_attention_in_the_kernel_needs_no_advice(options: Any, length: int) -> None:
    assert advice(options, length) is None


class BiasedHeads(Biased):
    """Each head has numbers of its own."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self.bias = nn.Parameter(torch.zeros(HEADS, 128, 128))


def test_a_trained_mask_of_each_head_is_in_the_kernel() -> None:
    assert advice(lambda n: {"dropout_p": 0.1}, module=BiasedHeads) is None
