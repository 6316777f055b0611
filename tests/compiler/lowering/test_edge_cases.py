"""Cases that PyTorch's operator database found: empty indices, layouts, poles, positions that the program computes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from compiler.lowering.op_check import check_op

pytestmark = pytest.mark.thin(2)

T = torch.Tensor


def draw(*shape: int) -> T:
    torch.manual_seed(2)
    return torch.randn(shape, requires_grad=True)


# what is viewed has shape (3, 4, 5)
STRIDED: dict[str, Callable[[T], T]] = {
    "contiguous": lambda x: x.as_strided((2, 3), (4, 1), 7),
    "permuted": lambda x: x.permute(2, 0, 1).as_strided((5, 2), (3, 20), 1),
    "transposed_and_computed": lambda x: (x.transpose(0, 2) * 2).as_strided((4, 3), (2, 5)),
    "sliced": lambda x: x[1].as_strided((2, 2), (5, 2)),
    "sliced_with_a_step": lambda x: x[:, ::2].as_strided((3, 2), (20, 10), 1),
    "expanded": lambda x: x[:, :1].expand(3, 4, 5).as_strided((3, 5), (20, 1)),
    "copied": lambda x: torch.as_strided_copy(x.transpose(0, 1), (2, 3), (7, 2), 3),
    "overlapping": lambda x: x.as_strided((6, 4), (2, 1)),
    "offset_kept": lambda x: x[2, 1:].as_strided((3,), (5,)),
}


@pytest.mark.parametrize("function", STRIDED.values(), ids=STRIDED)
def test_strided_views_follow_the_layout_of_the_tensor(function: Callable[[T], T]) -> None:
    check_op(function, draw(3, 4, 5))


@pytest.mark.parametrize("view", [lambda x: x, lambda x: x.permute(2, 0, 1)], ids=["contiguous", "permuted"])
def test_writing_through_a_strided_view(view: Callable[[T], T]) -> None:
    x, y = draw(3, 4, 5).detach(), draw(2, 3).detach()  # PyTorch has the gradient of contiguous tensors only
    check_op(lambda x, y: torch.as_strided_scatter(view(x) * 1, y, (2, 3), (7, 2), 3), x, y)


# one input each
SHAPES: dict[str, tuple[Callable[[T], object], tuple[int, ...]]] = {
    "pixel_shuffle_empty": (lambda x: F.pixel_shuffle(x, 1), (1, 1, 0, 1)),
    "pixel_unshuffle_empty": (lambda x: F.pixel_unshuffle(x, 1), (1, 1, 1, 0)),
    "unfold_empty": (lambda x: F.unfold(x, (2, 2)), (0, 1, 4, 4)),
    "max_unpool_empty": (lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2), (0, 1, 4, 4)),
    "gather_empty": (lambda x: x.gather(0, torch.zeros(2, 0, dtype=torch.int64)), (5,)),
    "scatter_empty": (lambda x: x.scatter(0, torch.zeros(2, 0, dtype=torch.int64), 1.0), (5,)),
    "cdist_empty": (lambda x: torch.cdist(x, torch.zeros(0, 3, 5)), (4, 5)),
    "multi_margin_one_class": (lambda x: F.multi_margin_loss(x, x.detach().long() * 0), ()),
    "nonzero_static": (lambda x: torch.nonzero_static(x > 0, size=7), (2, 3)),
    "nonzero_static_empty": (lambda x: torch.nonzero_static(x, size=4), (3, 0, 2)),
    "nonzero_static_number": (lambda x: torch.nonzero_static(x, size=2), ()),
    "repeat_interleave": (lambda x: x.repeat_interleave(torch.arange(4) % 3, 1, output_size=3), (2, 4)),
    "pinv_reads_one_triangle": (lambda x: torch.linalg.pinv(x, hermitian=True), (4, 4)),
}


@pytest.mark.parametrize(("function", "shape"), SHAPES.values(), ids=SHAPES)
def test_unusual_shapes(function: Callable[[T], object], shape: tuple[int, ...]) -> None:
    check_op(function, draw(*shape))


@pytest.mark.parametrize("order", [0, 1, 2, 3, 5])
def test_polygamma_left_of_zero(order: int) -> None:
    places = torch.tensor([-3.8, -2.2, -0.1, 0.2, 0.5, 1.0, 3.5, 20.0])
    # orders apart by one differ by decades, and so do neighbouring places: each is a check of its own
    for place in places:
        check_op(lambda x: torch.special.polygamma(order, x), place.clone().requires_grad_())


def test_zeta() -> None:
    q = torch.tensor([-3.7, -0.5, -2.0, 0.0, 0.3, 4.0])
    check_op(lambda q: (torch.special.zeta(3.0, q), torch.special.zeta(2.5, q), torch.special.zeta(1.0, q)), q)
