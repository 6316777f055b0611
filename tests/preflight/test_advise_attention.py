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


def advice(options: Any, length: int = 128, slice: str = "v5litepod-1") -> Advice | None:
    loader = DataLoader(TensorDataset(torch.rand(4, length, WIDTH)), batch_size=4)
    report = trainer().preflight(Attends(options), loader, slice=slice)
    return next((one for one in report.advice if one.topic == "attention"), None)


@pytest.mark.thin(4)
@pytest.mark.parametrize(
    ("options", "length", "slice", "cause", "remedy"),
    [
        (lambda n: {"attn_mask": torch.ones(n, n, dtype=torch.bool)}, 128, "v5litepod-1", "a mask", "pass is_causal=True"),
        (lambda n: {"dropout_p": 0.1}, 128, "v5litepod-1", "dropout on the probabilities", "dropout_p to 0"),
        (lambda n: {"is_causal": True}, 200, "v5litepod-1", "lengths of 200 x 200", "256 x 256 in place of 200 x 200"),
        (lambda n: {"is_causal": True}, 128, "v3-8", "a chip without kernels", "v4 and later chips"),
    ],
    ids=["mask", "dropout", "length", "chip"],
)
def test_what_keeps_attention_from_the_kernel(options: Any, length: int, slice: str, cause: str, remedy: str) -> None:
    found = advice(options, length, slice)
    assert found is not None
    assert remedy in found.text
    scores, share = found.evidence
    assert scores.name == f"model.net.0 ({LINE}), 2 times: {cause}; scores of one"
    # a batch of 4 on each core, float32
    assert (scores.value, scores.unit) == (4 * HEADS * length**2 * 4, "bytes")
    assert share.name == f"predicted time of {LINE}"
    assert 0 < share.value < 100  # type: ignore[operator]


def test_several_obstacles_are_all_named() -> None:
    found = advice(lambda n: {"attn_mask": torch.zeros(n, n), "dropout_p": 0.1}, 100)
    assert found is not None
    assert "a mask and dropout on the probabilities and lengths of 100 x 100; scores" in found.evidence[0].name
    assert "nothing to change" in found.text


def test_attention_in_the_kernel_needs_no_advice() -> None:
    assert advice(lambda n: {"is_causal": True}) is None
