"""Expressions that steps are written with, one a row: compiled, they equal eager PyTorch in values, dtypes and shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

import systolic

EXPRESSIONS = """
x.new_tensor((1.0, 2.0)).sum() * x
x.new_tensor([x.sum(), 2.0]) * x[:, :2]
x.new_tensor([[1, 2], [3, 4]], dtype=torch.long)
torch.LongTensor([0, 2])
x[torch.LongTensor([0, 2])]
x[:, torch.BoolTensor([True, False, True, False])]
torch.FloatTensor((1.0, 2.0))
torch.Tensor([1, 2]) * x[:, :2]
torch.Tensor(2, 3).zero_()
x.new(2, 3).zero_()
x.new([1.0, 2.0])
x.new_zeros((2,))
x.new_full((2,), 3)
x.new_ones(x.shape[0])
torch.full((), 3.0) * x
torch.zeros(*x.shape)
torch.zeros(x.size())
torch.zeros(x.shape[:1])
torch.arange(x.size(0))
torch.arange(0, 1, 0.25)
torch.linspace(0, 1, steps=5)
x[..., -1]
x[None]
x[:, None, ::2]
x[1:, [0, 2]]
x[[0, 1], [1, 2]]
x[x.argmax(0)]
x[x.argmax(0), torch.arange(4)]
x[x[:, 0].argsort()]
x.index_select(0, torch.tensor((0, 2)))
x.gather(1, torch.tensor([[0], [1], [2]]))
torch.where(x > 0, x, torch.tensor(0.0))
torch.where(x > 0, x, 0.0)
torch.where(x > 0, 1, 0)
torch.stack(tuple(x))
torch.stack([r.sum() for r in x])
torch.cat([x, x], -1)
sum((r.sum() for r in x))
torch.max(x.sum(), torch.tensor(0.0))
x.max(1)[0]
x.max(dim=1).values
torch.maximum(x, -x)
x.clamp(min=torch.tensor(0.0))
x.clamp(0, 1)
x.clip(max=0.5)
torch.tensor(math.pi) * x
x * np.pi
x * np.float32(2)
x + np.float64(1.5)
np.float32(2) * x
torch.tensor(np.array([1.0, 2.0]))
torch.from_numpy(np.arange(3))
torch.as_tensor(np.float32(3))
x[np.array([0, 2])]
x[np.int64(1)]
x[:, np.array([True, False, True, False])]
torch.tensor(True) & (x > 0)
(x > 0).any()
(x > 0).all(0)
(x > 0).sum()
(x > 0).float().mean()
x.norm()
x.norm(dim=1, keepdim=True)
F.normalize(x)
torch.linalg.norm(x)
x.std()
x.var(0, unbiased=False)
x.topk(2)
x.sort(1, descending=True)[1]
x.kthvalue(2, 1)[0]
x.median()
x.mode(1)[0]
x.cumsum(1)
x.quantile(torch.tensor([0.1, 0.9]))
torch.tril(torch.ones(3, 3)).bool()
torch.triu(torch.full((3, 3), float('-inf')), diagonal=1)
x.masked_fill(x > 0, float('-inf'))
x.masked_fill(torch.tensor([True, False, True, False]), -1)
F.pad(x, (1, 1))
F.pad(x[None], (0, 1, 1, 0), value=2.0)
F.pad(x[None, None], (1, 1, 1, 1), mode='reflect')
x.view(-1)
x.reshape(2, -1)
x.unflatten(1, (2, 2))
x.flatten()
x.permute(1, 0)
x.T
x.mT
x.expand(2, 3, 4)
x.repeat(2, 1)
x.tile(2)
x.unsqueeze(0).squeeze(0)
x.chunk(2, 1)
x.split([1, 3], 1)
x.unbind(1)
torch.einsum('ij,kj->ik', x, x)
x @ x.T
torch.outer(x[0], x[1])
torch.bmm(x[None], x.T[None])
torch.tensordot(x, x, dims=([1], [1]))
torch.cdist(x, x)
torch.kron(x, x)
F.one_hot(torch.tensor([0, 2]), 3)
F.cross_entropy(x, torch.tensor([0, 1, 3]))
F.nll_loss(x, torch.tensor([0, 1, 3]), ignore_index=3)
F.binary_cross_entropy_with_logits(x, (x > 0).float(), pos_weight=torch.tensor([1.0, 2.0, 3.0, 4.0]))
torch.scatter(torch.zeros(3, 4), 1, torch.tensor([[0], [1], [2]]), 1.0)
torch.zeros(4).scatter_add_(0, torch.tensor([0, 0, 3]), x[:, 0])
torch.zeros(3, 4).index_add_(0, torch.tensor([0, 0]), x[:2])
torch.bincount(torch.tensor([0, 1, 1]), minlength=4)
torch.histc(x, 4)
x.to(torch.bfloat16).float()
x.double()
x.half().float()
x.type(torch.int)
x.type_as(torch.tensor(1))
x.long()
x.bool()
x.to('cpu')
x.to(x.device, torch.float64)
torch.meshgrid(torch.arange(2), torch.arange(3), indexing='ij')
torch.cartesian_prod(torch.arange(2), torch.arange(3))
torch.combinations(torch.arange(3))
torch.is_tensor(x)
x.numel()
x.dim()
x.dtype
x.is_floating_point()
x.is_contiguous()
x.stride()
len(x)
x.ndim
x.nelement()
torch.logsumexp(x, 1)
torch.softmax(x, -1)
x.log_softmax(1)
torch.sigmoid(x)
F.gelu(x, approximate='tanh')
F.silu(x)
F.softplus(x, beta=2)
F.elu(x)
F.hardswish(x)
F.mish(x)
F.leaky_relu(x, 0.1)
F.glu(x)
F.selu(x)
torch.special.expit(x)
torch.erf(x)
torch.atan2(x, x + 1)
torch.sign(x)
torch.fmod(x, 0.4)
torch.remainder(x, 0.4)
x // 0.3
x % 0.7
torch.round(x, decimals=1)
torch.frac(x)
torch.nan_to_num(x / 0)
torch.isfinite(x / 0)
torch.lerp(x, x * 2, 0.3)
torch.addcmul(x, x, x, value=0.1)
torch.logaddexp(x, x)
torch.heaviside(x, torch.tensor(0.5))
torch.sinc(x)
torch.i0(x)
torch.lgamma(x.abs() + 1)
torch.digamma(x.abs() + 1)
torch.polygamma(1, x.abs() + 1)
torch.hypot(x, x)
torch.copysign(x, -x)
torch.xlogy(x, x.abs())
torch.diff(x)
torch.trapezoid(x)
torch.cumprod(x, 1)
torch.logcumsumexp(x, 1)
x.roll(1, 0)
x.flip(0)
x.rot90()
torch.searchsorted(torch.tensor([0.0, 1.0]), x)
torch.bucketize(x, torch.tensor([0.0, 1.0]))
torch.renorm(x, 2, 0, 1.0)
torch.block_diag(x, x)
torch.vander(x[0])
torch.corrcoef(x)
torch.cov(x)
torch.trace(x @ x.T)
torch.diag(x[0])
torch.diag_embed(x)
torch.diagonal(x)
torch.take(x, torch.tensor([0, 5]))
torch.take_along_dim(x, torch.tensor([[0], [1], [2]]), 1)
torch.isin(torch.tensor([1, 2]), torch.tensor([2]))
[float(i) for i in range(3)] and x
dict(a=x, b=[x, (x,)])
x.clone().index_put_((torch.tensor([0, 1]), torch.tensor([1, 2])), torch.tensor([5.0, 6.0]))
x.clone().index_fill_(0, torch.tensor([1]), 7.0)
x.clone().masked_scatter_(x > 0, torch.arange(12.0))
x.put(torch.tensor([0]), torch.tensor([9.0]))
x.clone().copy_(torch.ones(4))
torch.empty_like(x).copy_(x)
x.clone().zero_()
torch.zeros_like(x, dtype=torch.long)
torch.ones_like(x)
torch.full_like(x, 2)
torch.eye(3)
torch.view_as_real(torch.complex(x, x))
torch.polar(x.abs(), x)
torch.fft.rfft(x).abs()
torch.fft.fft2(x).real
torch.stft(x.flatten(), 4, window=torch.hann_window(4), return_complex=True).abs()
torch.hann_window(5)
torch.bartlett_window(4)
torch.broadcast_to(x[0], (2, 4))
torch.broadcast_tensors(x, x[:1])
torch.atleast_2d(x[0])
torch.hstack([x, x])
torch.vstack((x, x))
torch.dstack([x, x])
torch.column_stack((x, x))
torch.swapaxes(x, 0, 1)
torch.movedim(x, 0, 1)
torch.narrow(x, 0, 1, 2)
torch.select(x, 0, 1)
x.select(1, -1)
x.as_strided((2, 2), (1, 2))
x.unfold(1, 2, 1)
F.unfold(x[None, None], 2)
F.fold(torch.ones(1, 4, 6), (3, 4), 2)
F.interpolate(x[None, None], scale_factor=2, mode='bilinear')
F.grid_sample(x[None, None], torch.zeros(1, 2, 2, 2), align_corners=False)
F.affine_grid(torch.eye(2, 3)[None], [1, 1, 2, 2], align_corners=False)
F.pixel_shuffle(x.view(1, 4, 3, 1), 2)
F.max_pool2d(x[None], 2)
F.avg_pool2d(x[None], 2)
F.adaptive_avg_pool2d(x[None], (1, 2))
F.conv1d(x[None], torch.ones(2, 3, 2))
F.embedding(torch.tensor([0, 2]), x)
F.embedding_bag(torch.tensor([0, 2]), x, torch.tensor([0, 1]))
F.layer_norm(x, (4,))
F.group_norm(x[None], 3)
F.cosine_similarity(x, x + 1)
F.pairwise_distance(x, x + 1)
F.triplet_margin_loss(x, x + 1, x - 1)
F.kl_div(x, x.softmax(1), reduction='batchmean')
F.smooth_l1_loss(x, x * 2)
F.huber_loss(x, x * 2)
F.cosine_embedding_loss(x, x, torch.ones(3))
F.multi_margin_loss(x, torch.tensor([0, 1, 2]))
F.multilabel_margin_loss(x, torch.tensor([[0, -1, 0, 0]] * 3))
F.soft_margin_loss(x, x.sign())
F.poisson_nll_loss(x, x.abs())
"""
SCOPE = {"torch": torch, "np": np, "math": math, "F": F}


def rows() -> Sequence[str]:
    return EXPRESSIONS.strip().splitlines()


def require_equal(eager: Any, compiled: Any) -> None:
    if isinstance(eager, torch.Tensor):
        torch.testing.assert_close(compiled.cpu(), eager, rtol=1e-5, atol=1e-5, equal_nan=True)
    elif isinstance(eager, tuple | list):
        assert len(eager) == len(compiled)
        for one, other in zip(eager, compiled, strict=True):
            require_equal(one, other)
    elif isinstance(eager, dict):
        assert list(eager) == list(compiled)
        require_equal(list(eager.values()), list(compiled.values()))
    else:
        assert compiled == eager


@pytest.mark.tables
@pytest.mark.parametrize("expression", rows())
def test_an_expression_equals_eager_pytorch(expression: str) -> None:
    function = eval(f"lambda x: {expression}", SCOPE)  # the rows above
    x = torch.arange(12.0).view(3, 4) * 0.3 - 1
    require_equal(function(x.clone()), systolic.jit(function)(x.clone()))
