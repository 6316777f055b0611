"""Losses against eager PyTorch."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from compiler.lowering.op_check import check_op

pytestmark = pytest.mark.thin(3)

REDUCTIONS = ["none", "mean", "sum"]


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(5,), (6, 5), (3, 5, 2, 4), (3, 5, 4)])
def test_nll(shape: tuple[int, ...], weighted: bool, reduction: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape, requires_grad=True)
    target = torch.randint(0, 5, shape[:1] + shape[2:] if len(shape) > 1 else ())
    weight = [torch.rand(5)] if weighted else []
    check_op(lambda x, t, *w: F.nll_loss(x, t, *w, reduction=reduction, ignore_index=2), x, target, *weight)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_cross_entropy(reduction: str) -> None:
    torch.manual_seed(0)
    x, target = torch.randn(6, 5, requires_grad=True), torch.tensor([0, 1, -100, 4, 2, -100])
    check_op(lambda x, t: F.cross_entropy(x, t, reduction=reduction, label_smoothing=0.1), x, target)


@pytest.mark.parametrize("ignored", [-1, 7, 2**32 + 1, -(2**40)])
def test_any_number_can_stand_for_a_target_that_does_not_count(ignored: int) -> None:
    torch.manual_seed(0)
    x, target = torch.randn(4, 5, requires_grad=True), torch.tensor([0, ignored, 4, ignored])
    check_op(lambda x, t: F.cross_entropy(x, t, ignore_index=ignored), x, target)
    check_op(lambda x, t: F.nll_loss(x, t, torch.arange(5.0), ignore_index=ignored), x, target)


def test_nothing_but_ignored_targets() -> None:
    check_op(lambda x, t: F.nll_loss(x, t), torch.randn(3, 4), torch.full((3,), -100))


PAIRS = {
    "mse": lambda x, t, r: F.mse_loss(x, t, reduction=r),
    "l1": lambda x, t, r: F.l1_loss(x, t, reduction=r),
    "smooth_l1": lambda x, t, r: F.smooth_l1_loss(x, t, reduction=r, beta=0.7),
    "smooth_l1_zero": lambda x, t, r: F.smooth_l1_loss(x, t, reduction=r, beta=0.0),
    "huber": lambda x, t, r: F.huber_loss(x, t, reduction=r, delta=0.7),
    "soft_margin": lambda x, t, r: F.soft_margin_loss(x, t.sign(), reduction=r),
    "bce_logits": lambda x, t, r: F.binary_cross_entropy_with_logits(x, t.sigmoid(), reduction=r),
    "bce_logits_weights": lambda x, t, r: F.binary_cross_entropy_with_logits(
        x, t.sigmoid(), t.abs(), reduction=r, pos_weight=t[0].exp()
    ),
    "bce": lambda x, t, r: F.binary_cross_entropy(x.sigmoid(), t.sigmoid(), reduction=r),
    "bce_weights": lambda x, t, r: F.binary_cross_entropy(x.sigmoid(), (t > 0).float(), t.abs(), reduction=r),
    "kl": lambda x, t, r: F.kl_div(x, t.softmax(1), reduction=r),
    "poisson": lambda x, t, r: F.poisson_nll_loss(x, t.abs(), reduction=r, full=True),
    "hinge_embedding": lambda x, t, r: F.hinge_embedding_loss(x, t.sign(), reduction=r),
    "cosine_embedding": lambda x, t, r: F.cosine_embedding_loss(x, t, t[:, 0].sign(), reduction=r),
    "triplet": lambda x, t, r: F.triplet_margin_loss(x, t, t.flip(0), reduction=r),
    "margin_ranking": lambda x, t, r: F.margin_ranking_loss(x, t, t.sign(), reduction=r),
}


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("case", PAIRS)
@pytest.mark.filterwarnings("ignore:reduction")
def test_pairs(case: str, reduction: str) -> None:
    torch.manual_seed(0)
    x, target = torch.randn(5, 4, requires_grad=True), torch.randn(5, 4)
    check_op(lambda x, t: PAIRS[case](x, t, reduction), x, target)


@pytest.mark.parametrize("case", ["mse", "smooth_l1", "huber", "bce_logits", "bce"])
def test_pairs_bfloat16(case: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(5, 4).to(torch.bfloat16).requires_grad_()
    target = torch.randn(5, 4).to(torch.bfloat16)
    check_op(lambda x, t: PAIRS[case](x, t, "mean"), x, target, rtol=2e-2, atol=1e-3)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("options", [{}, {"p": 2, "margin": 0.5}])
def test_multi_margin(options: dict[str, float], reduction: str) -> None:
    torch.manual_seed(0)
    x, target, weight = torch.randn(5, 4, requires_grad=True), torch.tensor([0, 3, 2, 1, 1]), torch.rand(4)
    check_op(lambda x, t: F.multi_margin_loss(x, t, reduction=reduction, **options), x, target)
    check_op(lambda x, t, w: F.multi_margin_loss(x, t, weight=w, reduction=reduction, **options), x, target, weight)
    check_op(lambda x, t: F.multi_margin_loss(x, t, reduction=reduction), x.detach()[0].requires_grad_(), target[0])


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_multilabel_margin(reduction: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 4, requires_grad=True)
    target = torch.tensor([[3, 0, -1, 1], [-1, 0, 0, 0], [2, 1, 0, 3]])
    check_op(lambda x, t: F.multilabel_margin_loss(x, t, reduction=reduction), x, target)
    check_op(lambda x, t: F.multilabel_margin_loss(x, t, reduction=reduction), x.detach()[0].requires_grad_(), target[0])
