"""Slices, writes and parts whose bounds are values, as losses over samples of different lengths have them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from compiler.sized_steps import require_equal_to_eager
from torch import nn
from torch.nn.utils import rnn

import systolic

T = torch.Tensor
Body = Callable[[Any, T, T, T], T]
"""From a model, samples, targets and lengths to a loss."""
SAMPLES, STEPS, FEATURES = 4, 10, 3


def flags(m: Any, x: T, y: T, n: T) -> T:
    mask = torch.zeros(SAMPLES, STEPS, dtype=torch.bool)
    for i, k in enumerate(n):
        mask[i, :k] = True
    return (m(x) * mask).sum() / mask.sum()


def zeros_behind(m: Any, x: T, y: T, n: T) -> T:
    mask = torch.ones(SAMPLES, STEPS, dtype=x.dtype)
    for i, k in enumerate(n.tolist()):
        mask[i, k:] = 0
    return (m(x) * mask).sum() / mask.sum()


def ones_by_item(m: Any, x: T, y: T, n: T) -> T:
    mask = x.new_zeros(SAMPLES, STEPS)
    for i in range(len(n)):
        mask[i, : n[i].item()] = 1
    return (m(x) * mask).sum() / mask.sum()


def in_pairs(m: Any, x: T, y: T, n: T) -> T:
    losses = [F.mse_loss(h[:k], t[:k]) for h, t, k in zip(m(x), y, n, strict=True)]
    return sum(losses, x.new_zeros(())) / len(n)


def joined(m: Any, x: T, y: T, n: T) -> T:
    h, lengths = m(x), n.tolist()
    one, other = (torch.cat([of[i, :k] for i, k in enumerate(lengths)]) for of in (h, y))
    return F.smooth_l1_loss(one, other)


def divided_again(m: Any, x: T, y: T, n: T) -> T:
    flat = torch.cat([x[i, :k] for i, k in enumerate(n.tolist())])
    return torch.stack([part.mean() for part in m(flat).split(n.tolist())]).square().sum()


def parts_of_all(m: Any, x: T, y: T, n: T) -> T:
    h = m(x.reshape(-1, FEATURES))
    rest = SAMPLES * STEPS - int(n.sum())
    return torch.stack([part.sum() for part in h.split([*n.tolist(), rest])]).tanh().square().sum()


def experts(m: Any, x: T, y: T, n: T) -> T:
    """As mixtures of experts do: rows in the order of their experts, divided, and put together again."""
    expert = (x[:, :, 0].reshape(-1) * 1.5).long().clamp(-1, 1) + 1
    order = expert.argsort(stable=True)
    parts = x.reshape(-1, FEATURES)[order].split(torch.bincount(expert, minlength=3).tolist(), dim=0)
    results = torch.cat([m(part) * (i + 1) for i, part in enumerate(parts)])
    return torch.zeros(SAMPLES * STEPS, dtype=x.dtype).index_add(0, order, results).square().mean()


def from_where_the_last_ended(m: Any, x: T, y: T, n: T) -> T:
    flat, begin, found = m(x.reshape(-1, FEATURES)), 0, []
    for k in n.tolist():
        found.append(flat[begin : begin + k].mean())
        begin += k
    return torch.stack(found).square().mean()


def cumulative(m: Any, x: T, y: T, n: T) -> T:
    starts = F.pad(n.cumsum(0), (1, 0))
    flat = m(x.reshape(-1, FEATURES))
    return torch.stack([flat[a:b].mean() for a, b in zip(starts[:-1], starts[1:], strict=True)]).square().mean()


def masked_softmax(m: Any, x: T, y: T, n: T) -> T:
    h = m(x).clone()
    for i, k in enumerate(n.tolist()):
        h[i, k:] = -1e9
    return (F.softmax(h, 1) * y).sum()


def filled(m: Any, x: T, y: T, n: T) -> T:
    h = m(x).clone()
    for i, k in enumerate(n):
        h[i, k:].fill_(float("-inf"))
    return (F.softmax(h, 1) * y).sum()


def doubled(m: Any, x: T, y: T, n: T) -> T:
    h = m(x).clone()
    for i, k in enumerate(n):
        h[i, :k] *= 2
        h[i, k:] += y[i, k:]
    return h.square().mean()


def by_a_view(m: Any, x: T, y: T, n: T) -> T:
    h = m(x).clone()
    part = h[1:, : n[0]]
    part.mul_(3)
    part[0].add_(y[0, : n[0]])
    return h.square().mean()


def columns(m: Any, x: T, y: T, n: T) -> T:
    h = m(x) * torch.ones(2, 1, 1, dtype=x.dtype)
    return h[:, :, : n[1]].square().sum() / n[1] + h[..., n[1] :].sum().tanh()


def attention(m: Any, x: T, y: T, n: T) -> T:
    parts = [x[i, :k] for i, k in enumerate(n.tolist())]
    return torch.stack([(F.softmax(q @ q.T, -1) @ m(q)).mean() for q in parts]).square().mean()


def distances(m: Any, x: T, y: T, n: T) -> T:
    parts = [m(x[i, :k]).unsqueeze(1) for i, k in enumerate(n.tolist())]
    return torch.stack([torch.cdist(h, h, p=1).mean() for h in parts]).sum()


ONE_PROGRAM: dict[str, Body] = {
    "flags": flags,
    "zeros behind": zeros_behind,
    "ones, by item": ones_by_item,
    "means": lambda m, x, y, n: torch.stack([h[:k].mean() for h, k in zip(m(x), n, strict=True)]).square().mean(),
    "means of a list": lambda m, x, y, n: torch.stack([h[:k].mean() for h, k in zip(m(x), n.tolist(), strict=True)]).sum().tanh(),
    "sums by length": lambda m, x, y, n: sum((m(x)[i, : n[i]].sum() / n[i] for i in range(SAMPLES)), y.mean()),
    "in pairs": in_pairs,
    "joined": joined,
    "divided again": divided_again,
    "parts of all": parts_of_all,
    "experts": experts,
    "from where the last ended": from_where_the_last_ended,
    "cumulative": cumulative,
    "unpadded": lambda m, x, y, n: sum((p.square().mean() for p in rnn.unpad_sequence(m(x), n, batch_first=True)), y.mean()),
    "masked softmax": masked_softmax,
    "filled": filled,
    "doubled": doubled,
    "by a view": by_a_view,
    "columns": columns,
    "attention": attention,
    "distances": distances,
    "the middle": lambda m, x, y, n: torch.stack([m(x)[i, n[i] // 2 : n[i]].sum() for i in range(SAMPLES)]).tanh().mean(),
    "the last ones": lambda m, x, y, n: m(x)[:, -n[0] :].mean() + m(x)[0, : -n[1]].sum(),
    "beyond the end": lambda m, x, y, n: m(x)[:, : n[0] + 4].mean() + m(x)[:, 3 - n[1] :].sum().tanh(),
    "as long, behind others": lambda m, x, y, n: (lambda k: m(x).flatten()[k[0] + k[1] + k[2] : k[0] + k[1] + k[2] + 5].mean())(n.tolist()),
    "as long, further behind": lambda m, x, y, n: (lambda k: m(x).flatten()[2 * k[0] + 1 : 2 * k[0] + 4].mean())(n.tolist()),
    "as long, up to the end": lambda m, x, y, n: (lambda k: m(x)[:, k[0] // 2 + k[1] // 2 : k[0] // 2 + k[1] // 2 + 3].sum())(n.tolist()),
    "nothing": lambda m, x, y, n: m(x)[:, n[0] + 2 : n[0]].sum() + m(x).mean(),
    "softmax of each": lambda m, x, y, n: sum(((F.softmax(h[:k], 0) * t[:k]).sum() for h, t, k in zip(m(x), y, n, strict=True)), y.mean()),
    "largest of each": lambda m, x, y, n: torch.stack([h[:k].max() for h, k in zip(m(x), n, strict=True)]).mean(),
    "cross-entropy": lambda m, x, y, n: sum((F.cross_entropy(x[i, :k] * m(x)[i, :k, None], y[i, :k].long().clamp(0, 2)) for i, k in enumerate(n)), y.mean()),
}  # fmt: skip
"""By name: losses that have one program for all lengths."""

OTHERS: dict[str, Body] = {
    "every other one": lambda m, x, y, n: m(x)[:, : n[0] : 2].mean(),
    "padded": lambda m, x, y, n: m(rnn.pad_sequence([x[i, :k] for i, k in enumerate(n.tolist())])).square().mean(),
    "counted to the longest": lambda m, x, y, n: (m(x)[:, : n.max()] * (torch.arange(n.max()) < n[:, None])).sum() / n.sum(),
    "in a loop": lambda m, x, y, n: sum((m(x)[i, t] for i in range(SAMPLES) for t in range(n[i])), y.mean()).square(),  # type: ignore[arg-type]
    "a deviation": lambda m, x, y, n: torch.stack([m(x)[i, : k + 1].std() for i, k in enumerate(n.tolist())]).mean(),
}  # fmt: skip
"""By name: losses that may have several."""


def batches(count: int, shortest: int = 1) -> list[tuple[T, T, T]]:
    generator = torch.Generator().manual_seed(0)
    found = []
    for number in range(count):
        x, y = (torch.randn(SAMPLES, STEPS, *rest, generator=generator, dtype=torch.float64) for rest in ((FEATURES,), ()))
        n = torch.randint(shortest, STEPS + 1, (SAMPLES,), generator=generator)
        n[number % SAMPLES] = STEPS  # batches are padded to their longest sample
        found.append((x, y, n))
    return found


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(FEATURES, 1, dtype=torch.float64)

    def forward(self, x: T) -> T:
        return self.layer(x).squeeze(-1)


def require_equal(body: Body, given: list[tuple[T, T, T]], devices: int = 1) -> systolic.JitFunction:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's own, of the deviation of one element
        return require_equal_to_eager(body, Model(), given, devices)


@pytest.mark.thin(5)
@pytest.mark.parametrize("name", ONE_PROGRAM)
def test_all_lengths_have_one_program(name: str) -> None:
    compiled = require_equal(ONE_PROGRAM[name], batches(9))
    assert len(compiled.compiles) <= 3, [one.reason for one in compiled.compiles]


@pytest.mark.thin(2)
@pytest.mark.parametrize("name", ["flags", "means", "in pairs", "masked softmax"])
def test_the_host_does_not_wait_for_steps_of_the_program_for_all_lengths(name: str) -> None:
    compiled = require_equal(ONE_PROGRAM[name], batches(9))
    waits = [entry.program.waits for entry in compiled._engine._entries]
    assert waits == [False] + [True] * (len(waits) - 1), "programs for one size are right for some batches only"


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", OTHERS)
def test_others_are_equal_too(name: str) -> None:
    require_equal(OTHERS[name], batches(5))


@pytest.mark.thin(5)
@pytest.mark.parametrize("name", ["flags", "means", "joined", "parts of all", "masked softmax", "doubled"])
def test_of_nothing(name: str) -> None:
    require_equal(ONE_PROGRAM[name], batches(6, shortest=0))


@pytest.mark.tables
@pytest.mark.parametrize("name", ["flags", "means", "joined", "experts", "parts of all", "doubled", "attention"])
def test_on_four_cores(name: str) -> None:
    assert len(require_equal(ONE_PROGRAM[name], batches(8), 4).compiles) <= 3


@pytest.mark.parametrize(
    "split",
    [
        lambda x, sizes: torch.split(tensor=x, split_size_or_sections=sizes),
        lambda x, sizes: x.split(split_size=sizes, dim=-1),
        lambda x, sizes: torch.split_with_sizes(x, sizes, 0),
    ],
)
def test_split_is_called_in_several_ways(split: Callable[[T, list[int]], tuple[T, ...]]) -> None:
    step = systolic.jit(lambda x, n: torch.stack([part.sum() for part in split(x, n.tolist())]))
    torch.testing.assert_close(step(torch.arange(10.0), torch.tensor([1, 2, 3, 4])), torch.tensor([0.0, 3, 12, 30]))


def test_parts_that_are_not_the_whole_are_pytorchs_error() -> None:
    step = systolic.jit(lambda x, n: torch.stack([part.sum() for part in x.split(n.tolist())]))
    x = torch.arange(10.0)
    torch.testing.assert_close(step(x, torch.tensor([1, 2, 3, 4])), torch.tensor([0.0, 3, 12, 30]))
    for others in ([1, 2, 3, 5], [1, 2, 8, -1]):
        with pytest.raises(RuntimeError, match="split_with_sizes"):
            step(x, torch.tensor(others))
