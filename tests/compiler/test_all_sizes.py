"""`x[mask]` in a step: one program for all sizes, equal to eager PyTorch's results for every batch."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from compiler.sized_steps import require_equal_to_eager
from torch import nn

import systolic

T = torch.Tensor
Body = Callable[[nn.Module, T, T], T]
ROWS, FEATURES = 24, 4


def chosen(x: T) -> T:
    return x[:, 0] > 0


def classes(x: T) -> T:
    """Classes where the mask holds; elsewhere what no loss takes."""
    return torch.where(chosen(x), (x[:, 1] > 0).long(), -7)


def masked_mean(model: nn.Module, x: T, y: T) -> T:
    loss = (model(x) - y).square()
    return loss[loss.detach() > 0.3].mean()


def contrast(model: nn.Module, x: T, y: T) -> T:
    z = F.normalize(model(x)[chosen(x)], dim=-1)
    return -(z @ z.T / 0.5).log_softmax(-1).sum(-1).mean()


def normed(model: nn.Module, x: T, y: T) -> T:
    return (F.layer_norm(model(x)[chosen(x)], (3,)).relu() * y[chosen(x)]).sum() / chosen(x).sum()


def written_back(model: nn.Module, x: T, y: T) -> T:
    out = torch.zeros_like(y)
    out[chosen(x)] = model(x)[chosen(x)] * 2
    return (out - y).square().mean()


def added_back(model: nn.Module, x: T, y: T) -> T:
    (rows,) = torch.nonzero(chosen(x), as_tuple=True)
    return y.index_put((rows,), model(x[rows]), accumulate=True).square().mean()


def several_masks(model: nn.Module, x: T, y: T) -> T:
    h, near, far = model(x), x[:, 0] > 0.2, x[:, 2] < -0.1
    return h[near].square().mean() + 0.3 * h[far].abs().sum() / h[far].shape[0]


def picked(model: nn.Module, x: T, y: T) -> T:
    kept = chosen(x)
    return -model(x)[kept].log_softmax(-1).gather(1, classes(x)[kept][:, None]).mean()


def embedded(model: nn.Module, x: T, y: T) -> T:
    table = model.weight  # type: ignore[union-attr]
    return F.embedding(classes(x)[chosen(x)], table).square().sum(-1).sqrt().mean() + model(x).mean()


def written_over(model: nn.Module, x: T, y: T) -> T:
    """Rows are written several times; the last one stays."""
    rows = (torch.arange(ROWS) // 3)[chosen(x)]
    out = y * 0
    out[rows] = model(x)[chosen(x)]
    return (out - y).square().mean()


def summed_by_index(model: nn.Module, x: T, y: T) -> T:
    rows = (torch.arange(ROWS) % 5)[chosen(x)]
    total = torch.zeros(5, 3, dtype=x.dtype).index_add(0, rows, model(x)[chosen(x)])
    return total.square().mean() + model(x).index_select(0, torch.nonzero(chosen(x))[:, 0]).square().mean()


def in_a_row(model: nn.Module, x: T, y: T) -> T:
    """Several parts of which each has a size of its own, and one always the same, are one behind the other."""
    near, far = x[:, 0] > 0.2, x[:, 2] < -0.1
    z = torch.cat([model(x)[near], y, model(x)[far] * 2, y[:2]])
    weights = torch.cat([x[near], x, x[far], x[:2]])[:, 1]
    return (z.sum(-1) * weights).square().mean() + (z @ z.T).softmax(-1).square().sum() / z.shape[0]


def with_loops(model: nn.Module, x: T, y: T) -> T:
    """What graph networks do: edges without loops, and a loop for each node behind them."""
    nodes = 8
    edges = torch.stack([torch.arange(ROWS) % nodes, (torch.arange(ROWS) * 5 // 3) % nodes])
    kept = edges[:, chosen(x)]
    assert kept.size(0) == 2
    loops = torch.arange(nodes).repeat(2, 1)
    sources, targets = torch.cat([kept, loops], dim=1)
    degree = torch.zeros(nodes, dtype=x.dtype).scatter_add(0, targets, torch.ones(targets.size(0), dtype=x.dtype))
    h = model(x[:nodes])[sources] / degree[sources, None]
    return torch.zeros_like(h[:nodes]).index_add(0, targets, h).square().mean()


def counted_in_python(model: nn.Module, x: T, y: T) -> T:
    """As detectors do: positive boxes of each image are counted, and the sum is divided by their number."""
    number, losses = 0, []
    for positive in (chosen(x), x[:, 1] > 0):
        rows = torch.where(positive)[0]
        number += rows.numel()
        losses.append(F.smooth_l1_loss(model(x)[rows], y[rows], reduction="sum"))
    return torch.stack(losses).sum() / max(1, number) + model(x).mean() / (2 * number + 1)


def by_expert(model: nn.Module, x: T, y: T) -> T:
    """As mixtures of experts do: a mask of whole numbers."""
    mask = F.one_hot((x[:, 0] > 0).long(), 2)
    out = torch.zeros_like(y)
    for expert in range(2):
        (rows,) = torch.where(mask[:, expert])
        out = out.index_add(0, rows, model(x[rows]) * (expert + 1))
    return (out - y).square().mean()


def alike(model: nn.Module, x: T, y: T) -> T:
    """Two masks that select as many as each other."""
    near, other = chosen(x), chosen(x).flip(0)
    return (model(x)[near] * y[other]).square().mean() + y[other].mean() * model(x)[near].sum()


def selected_of_selected(model: nn.Module, x: T, y: T) -> T:
    h, target = model(x)[chosen(x)].exp(), y[chosen(x)]
    inner = target[:, 0] > -0.7
    return (h[inner] - target[inner]).square().mean() + h.mean()


def largest(model: nn.Module, x: T, y: T) -> T:
    h = model(x)[chosen(x)]
    rows = (torch.arange(ROWS) % 5)[chosen(x)]
    spread = torch.zeros(5, 3, dtype=x.dtype).scatter_reduce(0, rows[:, None].expand(-1, 3), h, "amax", include_self=False)
    return (
        h.amax()
        - h.min()
        + (h.amax(0) * h.amin(1, keepdim=True)).sum()
        + spread.square().sum()
        + h.shape[0] * rows.max().double()
    )


def product_by_index(model: nn.Module, x: T, y: T) -> T:
    h, rows = model(x)[chosen(x)], (torch.arange(ROWS) % 5)[chosen(x)]
    places = rows[:, None].expand(-1, 3)
    summed = (y[:5] * 1).scatter_reduce(0, places, h, "sum", include_self=False)
    return summed.square().sum() + (y[:5] * 1).scatter_reduce(0, places, h.detach(), "prod").tanh().sum()


def rows_of_many(model: nn.Module, x: T, y: T) -> T:
    """Positions in what is selected already, of rows of a tensor that is not."""
    inner = torch.where(x[chosen(x)][:, 1] > -0.9)[0]
    return model(x)[inner].square().mean()


def contrast_of_pairs(model: nn.Module, x: T, y: T) -> T:
    """The labels of a contrastive loss: each row's own number."""
    z = F.normalize(model(x)[chosen(x)], dim=-1)
    return F.mse_loss(z @ z.T, (torch.arange(z.shape[0])[:, None] == torch.arange(z.size(0))).double())


def varied(model: nn.Module, x: T, y: T) -> T:
    h = model(x)[chosen(x)]
    return h.var() + h.std(0).sum() + h.var(0, unbiased=False, keepdim=True).sum() + h.std(1).mean()


def standardised(model: nn.Module, x: T, y: T) -> T:
    h = model(x)[chosen(x)]
    return ((h - h.mean(0)) / (h.std(0) + 1e-3)).pow(3).sum()


def in_order(model: nn.Module, x: T, y: T) -> T:
    h = model(x)[chosen(x)]
    ranked = h[h[:, 0].detach().argsort(descending=True)].cumsum(0)
    rows = h.detach()[:, 1].argsort()
    up = h.sort(0).values * y[chosen(x)] + h.index_select(0, rows)
    return (ranked * up).mean() + h.flatten().sort(descending=True).values[1] + h.gather(0, h.detach().argsort(0))[0].sum()


def two_largest(model: nn.Module, x: T, y: T) -> T:
    h = model(x)[chosen(x)]
    values, rows = h.topk(2, dim=0)
    return (values * y[chosen(x)].gather(0, rows)).sum() + h.topk(2, 0, largest=False).values.prod()


def first_in_order(model: nn.Module, x: T, y: T) -> T:
    h = model(x)[chosen(x)]
    near = h.max(0).values * h.min(0).values + h.logsumexp(0) * h.argmax(0)
    return near.sum() + F.one_hot(h.argmax(1), 3).double().mul(h).sum() + h.detach().flatten().argmin() * h.mean()


def ends(model: nn.Module, x: T, y: T) -> T:
    h = model(x)[chosen(x)]
    return (h[0] * h[-1]).sum() + h[1].sum() * h[-2].sum() + h[-2:].square().sum()


def neighbours(model: nn.Module, x: T, y: T) -> T:
    h = model(x)[chosen(x)]
    return (
        (h[1:] - h[:-1]).square().sum() + h[1:-1].square().sum() + (h.flip(0) * y[chosen(x)]).sum() + h.diff(dim=0).abs().sum()
    )


def joined(model: nn.Module, x: T, y: T) -> T:
    """A dimension with one behind it as one, and divided again."""
    h = model(x)[chosen(x)]
    each = model(x).view(ROWS, 3, 1)[chosen(x)].expand(-1, -1, 4).reshape(-1, 4).softmax(-1)[:, 0]
    both = torch.cat([h.flatten(), y.flatten()])
    return (each * y[chosen(x)].reshape(-1)).sum() + both.square().mean() + ((h.view(-1) * 2).view(-1, 3) * y[chosen(x)]).sum()


def of_pairs(model: nn.Module, x: T, y: T) -> T:
    """Contrastive losses: each row against all, with itself left out, or as its own class."""
    h, other = model(x)[chosen(x)], y[chosen(x)]
    scores = h @ other.T
    alone = (h @ h.T).masked_fill(torch.eye(h.shape[0], dtype=torch.bool), -1e3).logsumexp(1).mean()
    named = F.cross_entropy(scores, torch.arange(len(scores)))
    halves = scores.tril().sum() + torch.triu(scores, diagonal=1).square().sum() + scores.diag().log_softmax(0)[0]
    ranked = scores.sort(1).values[:, 1].mean() + (scores.sort(0, descending=True).values * scores.detach()).mean()
    return alone + named + halves / 9 + scores.diagonal().mean() + (h @ h.T * (1 - torch.eye(h.size(0)))).mean() + ranked


def distances(model: nn.Module, x: T, y: T) -> T:
    h, other = model(x)[chosen(x)], y[chosen(x)]
    ranked = -F.logsigmoid(h[:, None, 0] - h[None, :, 0]).mean()
    far = F.triplet_margin_loss(h, other, other.roll(1, 0))
    return torch.cdist(h, other).mean() + (h[:, None] - h[None]).square().sum(-1).mean() + ranked + far


def normalised(model: nn.Module, x: T, y: T) -> T:
    h = F.batch_norm(model(x)[chosen(x)], None, None, training=True)
    left, right = h.split([1, 2], dim=1)
    (first, _) = h.chunk(2, 1)
    return (h * y[chosen(x)]).sum() + (left * right).mean() + first.square().mean() + torch.cov(model(x)[chosen(x)].T).sum()


def with_running_statistics(model: nn.Module, x: T, y: T) -> T:
    h, mean, variance = model(x)[chosen(x)], torch.zeros(3).double(), torch.ones(3).double()
    normal = F.batch_norm(h, mean, variance, h.detach()[0] + 1, h.detach()[1], training=True, momentum=0.3)
    return (normal * y[chosen(x)]).sum() + mean.sum() * h.mean() + variance.sum() * h.square().mean()


def counted_by_len(model: nn.Module, x: T, y: T) -> T:
    h = model(x)[chosen(x)]
    if len(x[chosen(x)]) > 0:
        return h.sum() / max(len(h), 1) + (h * torch.ones(len(h), 1)).mean()
    return h.sum()


def by_count(model: nn.Module, x: T, y: T) -> T:
    few = int(chosen(x).sum()) // 5
    return model(x)[chosen(x)].square().mean() * (1 + few)


BOUNDED: dict[str, Body] = {
    "counted": by_count,
    "of pairs": of_pairs,
    "distances": distances,
    "normalised": normalised,
    "with running statistics": with_running_statistics,
    "counted by len": counted_by_len,
    "varied": varied,
    "standardised": standardised,
    "in order": in_order,
    "two largest": two_largest,
    "first in order": first_in_order,
    "ends": ends,
    "neighbours": neighbours,
    "joined": joined,
    "the first five": lambda m, x, y: m(x)[chosen(x)][:5].square().sum(),
    "contrast of pairs": contrast_of_pairs,
    "largest": largest,
    "product by index": product_by_index,
    "rows of many": rows_of_many,
    "selected of selected": selected_of_selected,
    "written over": written_over,
    "summed by index": summed_by_index,
    "in a row": in_a_row,
    "with loops": with_loops,
    "counted in Python": counted_in_python,
    "alike": alike,
    "cross-entropy": lambda m, x, y: F.cross_entropy(m(x)[chosen(x)], classes(x)[chosen(x)]),
    "cross-entropy summed": lambda m, x, y: F.cross_entropy(m(x)[chosen(x)], classes(x)[chosen(x)], reduction="sum") / 9,
    "a mean of a masked loss": masked_mean,
    "mse": lambda m, x, y: F.mse_loss(m(x)[chosen(x)], y[chosen(x)]),
    "smooth l1 and huber": lambda m, x, y: F.smooth_l1_loss(m(x)[chosen(x)], y[chosen(x)]) + F.huber_loss(m(x[chosen(x)]), y[chosen(x)]),
    "l1, summed": lambda m, x, y: F.l1_loss(m(x)[chosen(x)], y[chosen(x)], reduction="sum") / 20,
    "bce with logits": lambda m, x, y: F.binary_cross_entropy_with_logits(m(x)[chosen(x)], (y[chosen(x)] > 0).double()),
    "contrast": contrast,
    "normed": normed,
    "written back": written_back,
    "added back": added_back,
    "several masks": several_masks,
    "picked": picked,
    "embedded": embedded,
    "nonzero": lambda m, x, y: m(x[torch.nonzero(chosen(x)).squeeze(1)]).abs().mean(),
    "masked_select": lambda m, x, y: torch.masked_select(m(x), y > 0).exp().mean(),
    "logarithms of what is negative elsewhere": lambda m, x, y: (x[:, 0][chosen(x)].log() * m(x)[chosen(x)][:, 0]).mean(),
    "accuracy": lambda m, x, y: m(x).mean() + (m(x)[chosen(x)].argmax(-1) == classes(x)[chosen(x)]).double().mean(),
    "divided by its length": lambda m, x, y: m(x)[chosen(x)].square().sum() / x[chosen(x)].shape[0],
    "a norm": lambda m, x, y: m(x)[chosen(x)].norm(),
}  # fmt: skip
"""By name: losses that get one program for all sizes from two on."""


def top_half(model: nn.Module, x: T, y: T) -> T:
    h = model(x)[chosen(x)][:, 0]
    return h.sort().values[: h.shape[0] // 2 + 1].sum() + model(x).mean()


def branched(model: nn.Module, x: T, y: T) -> T:
    h = model(x)[chosen(x)]
    return h.mean() * 3 if h.shape[0] > ROWS // 2 else h.square().mean()


def two_sizes(model: nn.Module, x: T, y: T) -> T:
    h, other = model(x)[chosen(x)], y[y[:, 0] > 0]
    return h.mean() * (3 if h.shape[0] > other.shape[0] else 2) + other.mean() * h.sum()


def rest_of_two(model: nn.Module, x: T, y: T) -> T:
    """A size of nothing in one batch is compared."""
    rest = model(x)[chosen(x)][2:]
    return rest.square().sum() * (2 if rest.shape[0] > 5 else 1)


BRANCHING: dict[str, Body] = {
    "a branch": branched,
    "a rest": rest_of_two,
    "the smaller one": lambda m, x, y: m(x)[chosen(x)].square().sum() * min([*x[chosen(x)].size(), 9]),
    "two sizes": two_sizes,
    "an expert": by_expert,
}  # fmt: skip
"""By name: losses in which Python compares sizes: a program for each outcome, once both have come up twice."""


READING: dict[str, Body] = {
    "as many as others": lambda m, x, y: m(x)[chosen(x)][: x[x[:, 1] > 0].shape[0]].square().sum(),
    "half of them": top_half,
    "len": lambda m, x, y: m(x)[chosen(x)].square().sum() * (len(x[chosen(x)]) // 4),
    "numel": lambda m, x, y: m(x)[chosen(x)].square().sum() * (x[chosen(x)].numel() // 30),
    "flat": lambda m, x, y: m(x)[chosen(x)].square().sum() * (x[chosen(x)].flatten().shape[0] // 30),
    "a tensor of it": lambda m, x, y: m(x)[chosen(x)].square().sum() / torch.tensor(x[chosen(x)].shape[0]),
    "logarithms": lambda m, x, y: m(x)[chosen(x)].mean() * round(math.log(x[chosen(x)].shape[0])),
    "NumPy's": lambda m, x, y: m(x)[chosen(x)].mean() * int(np.log2(x[chosen(x)].shape[0])),
    "a range": lambda m, x, y: sum(m(x)[chosen(x)][i].square().sum() for i in range(x[chosen(x)].shape[0])) * y.mean(),
    "a loop": lambda m, x, y: torch.stack([row.square().sum() for row in m(x)[chosen(x)]]).mean(),
}  # fmt: skip
"""By name: losses in which Python computes with a size, or an op looks at all elements at once: a program for each."""


def batches(count: int) -> list[tuple[T, T]]:
    """Masks that select from two rows to all, and in the end one and none."""
    generator = torch.Generator().manual_seed(3)
    found = []
    for number in range(count):
        x, y = (torch.randn(ROWS, n, generator=generator, dtype=torch.float64) for n in (FEATURES, 3))
        selects = [9, 13, 2, ROWS, 17, 5, 11, 20][number % 8]
        order = torch.randperm(ROWS, generator=generator)
        x[:, 0] = torch.where(torch.isin(torch.arange(ROWS), order[:selects]), x[:, 0].abs(), -x[:, 0].abs())
        found.append((x, y))
    return found


def few(selects: int) -> tuple[T, T]:
    x, y = batches(1)[0]
    x[:, 0] = -x[:, 0].abs()
    x[3 : 3 + selects, 0] = 0.4
    return x, y


def require_equal(body: Body, given: list[tuple[T, T]], devices: int = 1) -> systolic.JitFunction:
    torch.manual_seed(0)
    return require_equal_to_eager(body, nn.Linear(FEATURES, 3).double(), given, devices, momentum=0.9)


@pytest.mark.tables
@pytest.mark.parametrize("name", ["cross-entropy", "written back", "in order", "of pairs", "normalised", "neighbours"])
def test_on_eight_cores(name: str) -> None:
    assert len(require_equal(BOUNDED[name], batches(8), 8).compiles) <= 3


@pytest.mark.thin(5)
@pytest.mark.parametrize("name", BOUNDED)
def test_one_program_for_all_sizes(name: str) -> None:
    compiled = require_equal(BOUNDED[name], batches(8))
    assert len(compiled.compiles) <= 3, [one.reason for one in compiled.compiles]


@pytest.mark.thin(2)
@pytest.mark.parametrize("name", BRANCHING)
def test_python_may_compare_sizes(name: str) -> None:
    given = batches(8)
    compiled = require_equal(BRANCHING[name], given)
    assert len(compiled.compiles) <= 5, [one.reason for one in compiled.compiles]
    before = len(compiled.compiles)
    torch.manual_seed(1)
    for x, y in given:
        compiled(x, y)
    assert len(compiled.compiles) == before, "each way has its program"


OFTEN = ("mse", "written back", "several masks", "divided by its length")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.tables if name in OFTEN else pytest.mark.slow) for name in BOUNDED]
)
@pytest.mark.filterwarnings("ignore:.*degrees of freedom is <= 0")
def test_of_one_element_and_of_none_the_results_are_pytorchs_own(name: str) -> None:
    given = batches(3)
    for batch in (few(1), batches(2)[1], few(1), few(0)):
        try:
            BOUNDED[name](nn.Linear(FEATURES, 3).double(), *batch)
        except (RuntimeError, IndexError, ValueError):
            compiled = require_equal(BOUNDED[name], given)
            with pytest.raises((RuntimeError, IndexError, ValueError)):
                compiled(*batch)
        else:
            given.append(batch)
    require_equal(BOUNDED[name], given)


@pytest.mark.thin(2)
@pytest.mark.parametrize("name", ["mse", "cross-entropy", "summed by index", "an expert", "normed", "a norm"])
def test_one_element_and_none_need_no_program_of_their_own(name: str) -> None:
    compiled = require_equal((BOUNDED | BRANCHING)[name], [*batches(4), few(1), few(0)])
    assert len(compiled.compiles) <= 3, [one.reason for one in compiled.compiles]


@pytest.mark.thin(5, 3)
@pytest.mark.parametrize("name", READING)
def test_where_python_computes_with_a_size_it_is_that_of_the_batch(name: str) -> None:
    given = batches(4)
    compiled = require_equal(READING[name], given)
    assert len(compiled.compiles) >= len(given), "a program for each size"


def test_what_is_not_selected_may_be_anything() -> None:
    """NaN, infinities and indices outside stay where they are."""
    given = []
    for x, y in batches(6):
        y = torch.where(chosen(x)[:, None], y, torch.tensor([torch.nan, torch.inf, -torch.inf], dtype=torch.float64))
        given.append((x, y))
    body: Body = lambda m, x, y: (m(x)[chosen(x)] * y[chosen(x)]).square().mean() + (y[chosen(x)].T @ m(x)[chosen(x)]).sum()  # noqa: E731
    assert len(require_equal(body, given).compiles) <= 3


def test_an_index_of_a_selected_row_that_is_outside_is_an_error() -> None:
    table = nn.Parameter(torch.ones(3, 2, dtype=torch.float64))

    def step(x: T, rows: T) -> T:
        return F.embedding(rows[chosen(x)], table).sum()

    compiled = systolic.jit(step)
    (x, _), (other, _) = batches(2)
    rows = torch.zeros(ROWS, dtype=torch.int64)
    compiled(x, rows)
    compiled(other, rows)
    with pytest.raises(systolic.exceptions.OutOfRangeError):
        compiled(x, torch.where(chosen(x), 5, rows))


def test_values_kept_by_python_are_those_of_each_batch() -> None:
    kept: list[int] = []

    def step(x: T, y: T) -> T:
        kept.append(x[chosen(x)].shape[0])
        return x[chosen(x)].sum()

    compiled = systolic.jit(step)
    given = batches(4)
    for batch in given:
        compiled(*batch)
    assert kept == [int(chosen(x).sum()) for x, _ in given]


def test_the_devices_say_how_many_they_select() -> None:
    """The host's own computation, from which a trace takes its first guess, rounds otherwise."""
    x = torch.linspace(-3, 3, 4000)
    limits = systolic.jit(lambda x: x.exp())(x).clone()
    assert bool((x.exp() < limits).any())

    def step(x: T, limits: T) -> tuple[T, T]:
        keep = x.exp() >= limits
        return torch.ones_like(x[keep]).sum(), keep.sum()

    compiled = systolic.jit(step)
    for shift in (0.0, 0.0, 1e-7, 0.0):
        selected, counted = compiled(x, limits + shift)
        assert int(selected) == int(counted) > 0


@pytest.mark.thin(4)
@pytest.mark.parametrize(
    "chosen_rows",
    [
        lambda h, kept: h[kept.nonzero()[2:].view(-1)],
        lambda h, kept: h[kept].view(-1),
        lambda h, kept: h[kept].reshape(-1, 3, 1),
        lambda h, kept: torch.cat([h[kept.nonzero()[2:].view(-1)], h[(~kept).nonzero()[2:].view(-1)]]),
    ],
)
@pytest.mark.parametrize("counts", [(6, 2, 5), (5, 0, 3), (1, 0, 2), (0, 4, 0, 2)])
def test_a_batch_of_which_nothing_is_chosen(chosen_rows: Callable[[T, T], T], counts: tuple[int, ...]) -> None:
    """Also where the program for all sizes is to be made of its trace."""
    torch.manual_seed(0)
    model, compiled = nn.Linear(4, 3), systolic.jit(lambda x: chosen_rows(model(x), x[:, 0] > 0).sum())
    for count in counts:
        x = torch.randn(12, 4).abs()
        x[count:, 0] *= -1
        torch.testing.assert_close(compiled(x), chosen_rows(model(x), x[:, 0] > 0).sum())
