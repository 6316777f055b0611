from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from compiler.lowering.op_check import check_op

T = torch.Tensor
aten = torch.ops.aten


def draw(*shape: int) -> T:
    torch.manual_seed(1)
    return torch.randn(shape, requires_grad=True)


# what is viewed has shape (4, 6, 2)
VIEWS: dict[str, Callable[[T], object]] = {
    "view": lambda x: x.view(2, -1, 4),
    "reshape_of_transposed": lambda x: x.transpose(0, 1).reshape(8, 6),
    "flatten": lambda x: x.flatten(1),
    "unflatten": lambda x: x.unflatten(1, (2, 3)),
    "ravel": torch.ravel,
    "t": lambda x: x[0].t(),
    "mT": lambda x: x.mT,
    "transpose": lambda x: x.transpose(-1, 0),
    "permute": lambda x: x.permute(2, 0, -2),
    "movedim": lambda x: x.movedim((0, 1), (-1, 0)),
    "swapaxes": lambda x: x.swapaxes(0, 2),
    "expand": lambda x: x[:, :1].expand(3, -1, 5, 2),
    "expand_as": lambda x: x[:1].expand_as(x),
    "broadcast_to": lambda x: x[0].broadcast_to(3, 6, 2),
    "unsqueeze": lambda x: x.unsqueeze(0).unsqueeze(-1),
    "squeeze": lambda x: x[:1, :, :1].squeeze(),
    "squeeze_dim": lambda x: x[:1, :, :1].squeeze(-1).squeeze(0).squeeze(0),
    "squeeze_dims": lambda x: x[:1, :, :1].squeeze((0, 1)),
    "select": lambda x: x.select(1, -2) + x[:, 0],
    "slice": lambda x: x[1:3, ::2, -1:],
    "slice_beyond": lambda x: x[:100, -100:4],
    "slice_empty": lambda x: x[3:1],
    "narrow": lambda x: x.narrow(1, 2, 3),
    "narrow_negative": lambda x: torch.narrow(x, 1, -3, 2),
    "split": lambda x: torch.split(x, 4, 1),
    "split_with_sizes": lambda x: torch.split(x, [1, 3, 2], 1),
    "chunk": lambda x: torch.chunk(x, 4, 1),
    "tensor_split": lambda x: torch.tensor_split(x, 4, 1),
    "unbind": lambda x: torch.unbind(x, -1),
    "hsplit": lambda x: torch.hsplit(x, 2),
    "cat": lambda x: torch.cat([x, x * 2, x[:, :1]], 1),
    "cat_negative": lambda x: torch.cat([x, x], -1),
    "stack": lambda x: torch.stack([x, x + 1], -1),
    "hstack": lambda x: torch.hstack([x, x]),
    "clone": lambda x: x.clone().contiguous().detach() + torch.ops.aten.alias(x),
    "unfold": lambda x: x.unfold(1, 3, 2),
    "unfold_overlapping": lambda x: x.unfold(-2, 4, 1),
    "diagonal": lambda x: x.diagonal(1, 0, 1),
    "diagonal_negative": lambda x: x.diagonal(-1, -2, -1),
    "diag_embed": lambda x: torch.diag_embed(x, 1),
    "diag_embed_dims": lambda x: torch.diag_embed(x, -2, 0, 2),
    "diag": lambda x: torch.diag(x[:, 0, 0]),
    "as_strided": lambda x: x.as_strided((3, 2), (5, 2), 1),
    "flip": lambda x: x.flip(0, -1),
    "roll": lambda x: x.roll((1, -2), (0, 1)),
    "roll_flat": lambda x: x.roll(3),
    "rot90": lambda x: x.rot90(1, (0, 1)) * 2,
    "rot90_back": lambda x: x.rot90(-1, (1, 2)),
    "rot180": lambda x: x.rot90(2, (0, 2)),
    "repeat": lambda x: x.repeat(2, 1, 3),
    "repeat_more_dims": lambda x: x.repeat(2, 1, 1, 1),
    "tile": lambda x: x.tile(2, 2),
    "repeat_interleave": lambda x: x.repeat_interleave(3, 1),
    "pad": lambda x: F.pad(x, (1, 2, 0, 3), value=0.5),
    "pad_negative": lambda x: F.pad(x, (-1, 2, -2, 1)),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x.reshape(4, 3, 4), 2),
    "pixel_unshuffle": lambda x: F.pixel_unshuffle(x.reshape(1, 3, 4, 4), 2),
    "channel_shuffle": lambda x: F.channel_shuffle(x.reshape(2, 6, 2, 2), 3),
    "tril": lambda x: x.tril(),
    "triu": lambda x: x.triu(-1),
    "tril_above": lambda x: x.tril(2),
    "meshgrid": lambda x: torch.meshgrid(x[0, 0], x[0, 1], indexing="ij"),
    "block_diag": lambda x: torch.block_diag(x[0], x[:, 0]),
    "to_float64_and_back": lambda x: x.double().float(),
    "to_bool": lambda x: x.detach() > 0,
    "atleast_3d": lambda x: torch.atleast_3d(x[0]),
    "index_of_slices": lambda x: x[..., None, 0],
}


@pytest.mark.thin(3)
@pytest.mark.parametrize("function", VIEWS.values(), ids=VIEWS)
def test_view(function: Callable[[T], object]) -> None:
    check_op(function, draw(4, 6, 2))


WRITES: dict[str, Callable[[T, T], T]] = {
    "slice_scatter": lambda x, y: torch.slice_scatter(x, y[:, 1:3], 1, 1, 3),
    "slice_scatter_step": lambda x, y: torch.slice_scatter(x, y[:, :3], 1, 0, 6, 2),
    "select_scatter": lambda x, y: torch.select_scatter(x, y[0], 0, -1),
    "diagonal_scatter": lambda x, y: torch.diagonal_scatter(x, y[:, :4, 0].diagonal()[None].expand(2, 4), 0, 0, 1),
    "as_strided_scatter": lambda x, y: torch.as_strided_scatter(x, y[:3, :2, 0], (3, 2), (5, 2), 1),
}


@pytest.mark.parametrize("function", WRITES.values(), ids=WRITES)
def test_write_into_view(function: Callable[[T, T], T]) -> None:
    check_op(function, draw(4, 6, 2), (draw(4, 6, 2) * 2).detach().requires_grad_())


def test_many_windows() -> None:
    check_op(lambda x: x.unfold(0, 70, 1), draw(140))
    check_op(lambda x: x.unfold(0, 100, 7), draw(140))
    check_op(lambda x: x.unfold(0, 5, 5), draw(140))


def test_in_place_writes() -> None:
    def write(x: T, y: T) -> T:
        out = x.clone()
        out[1:3, ::2] = y[1:3, ::2]
        out[:, 0].mul_(2)
        out.diagonal().add_(1)
        out[2] += y[0]
        return out

    check_op(write, draw(4, 6, 2), draw(4, 6, 2))


def test_view_copies() -> None:
    check_op(lambda x: aten.view_copy(x, [8, 6]) + aten.expand_copy(x[0, 0, :1], [8, 6]), draw(4, 6, 2))
    check_op(lambda x: aten.transpose_copy(aten.permute_copy(x, [2, 0, 1]), 0, 1), draw(4, 6, 2))
    check_op(lambda x: aten.slice_copy(aten.select_copy(x, 1, 2), 0, 1, 3), draw(4, 6, 2))
    check_op(lambda x: aten.unsqueeze_copy(aten.t_copy(x), 0), draw(4, 6))
    check_op(lambda x: aten.narrow_copy(aten.alias_copy(x), 1, 1, 2), draw(4, 6).detach())


def test_views_of_scalars_and_empties() -> None:
    scalar = torch.tensor(2.0, requires_grad=True)
    check_op(lambda x: x.transpose(0, 0).flip(0).unsqueeze(0).expand(3), scalar)
    check_op(lambda x: x.squeeze(0).roll(1).reshape(1, 1), scalar)
    check_op(lambda x: x.unfold(0, 1, 1), scalar)
    check_op(lambda x: torch.cat([torch.zeros(0), x]), draw(2, 3))
    check_op(lambda x: torch.split(x, 2), torch.zeros(0, 3))
    check_op(lambda x: x.reshape(3, 0), torch.zeros(0, 3))


def test_join_promotes() -> None:
    check_op(lambda x, y: torch.cat([x, y]), draw(3), torch.arange(3))
    check_op(lambda x, y: torch.stack([x, y]), torch.arange(3, dtype=torch.int32), torch.arange(3))
    check_op(lambda x, y: torch.cat([x, y]), draw(3).detach().bfloat16(), draw(3))


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8, torch.int64, torch.bfloat16])
def test_bits(dtype: torch.dtype) -> None:
    check_op(lambda x: x.view(dtype), draw(4, 6).detach())
    check_op(lambda x: x.view(torch.float32), torch.ones(2, 4, dtype=torch.int32))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool, torch.bfloat16, torch.float64])
def test_cast(dtype: torch.dtype) -> None:
    check_op(lambda x: (x * 10).to(dtype), draw(4, 6).detach())
    check_op(lambda x: x.to(dtype).float(), torch.arange(5))
