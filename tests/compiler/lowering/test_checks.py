"""Integers and probabilities that eager PyTorch refuses are refused by compiled programs, and no others."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import systolic

pytestmark = pytest.mark.thin(3)

ROWS = torch.arange(12.0).reshape(4, 3)
LINE = torch.arange(4.0)
HUGE = 2**32 + 1
"""Its lower half is an index that is allowed."""

INDICES = [[0, 1], [0, 2], [0, -1], [-4, 0], [-5, 0], [3, 0], [4, 0], [0, 9], [HUGE, 0], [-HUGE, 0]]

Op = Callable[[torch.Tensor], torch.Tensor]


def row(i: torch.Tensor) -> torch.Tensor:
    return torch.stack([i[0], i[1], i[0]])[None]


OPS: dict[str, Op] = {
    "x[i]": lambda i: ROWS[i],
    "x[:, i]": lambda i: ROWS[:, i],
    "x[i, i]": lambda i: ROWS[i, i],
    "x[i] of int32": lambda i: ROWS[i.clamp(-100, 100).int()],
    "x[i] = y": lambda i: ROWS.clone().index_put((i,), torch.tensor(1.0)),
    "x[i] += y": lambda i: ROWS.clone().index_put((i,), torch.tensor(1.0), accumulate=True),
    "gather": lambda i: ROWS.gather(0, row(i)),
    "gather of a number": lambda i: LINE[0].gather(0, i[0]),
    "scatter": lambda i: ROWS.scatter(0, row(i), 1.0),
    "scatter tensor": lambda i: ROWS.scatter(1, i[:, None], torch.ones(2, 1)),
    "scatter_add": lambda i: ROWS.scatter_add(0, row(i), torch.ones(1, 3)),
    "scatter_reduce": lambda i: ROWS.scatter_reduce(0, row(i), torch.ones(1, 3), "amax"),
    "index_select": lambda i: ROWS.index_select(0, i),
    "index_select columns": lambda i: ROWS.index_select(1, i),
    "index_select of a number": lambda i: LINE[1].index_select(0, i[:1]),
    "index_add": lambda i: ROWS.index_add(0, i, torch.ones(2, 3)),
    "index_add to a line": lambda i: LINE.index_add(0, i, torch.ones(2)),
    "index_copy": lambda i: ROWS.index_copy(0, i, torch.ones(2, 3)),
    "index_fill": lambda i: ROWS.index_fill(0, i, 1.0),
    "index_reduce": lambda i: ROWS.index_reduce(0, i, torch.ones(2, 3), "amax"),
    "take": lambda i: ROWS.take(i),
    "put": lambda i: ROWS.put(i, torch.ones(2)),
    "take_along_dim": lambda i: torch.take_along_dim(ROWS, row(i), 0),
    "take_along_dim flat": lambda i: torch.take_along_dim(ROWS, i),
    "embedding": lambda i: F.embedding(i, ROWS),
    "embedding padding": lambda i: F.embedding(i, ROWS, padding_idx=1),
    "embedding_bag sum": lambda i: F.embedding_bag(i, ROWS, torch.tensor([0, 1]), mode="sum"),
    "embedding_bag mean": lambda i: F.embedding_bag(i[None], ROWS),
    "embedding_bag max": lambda i: F.embedding_bag(i, ROWS, torch.tensor([0, 1]), mode="max"),
    "embedding_bag weights": lambda i: F.embedding_bag(
        i, ROWS, torch.tensor([0]), mode="sum", per_sample_weights=torch.ones(2)
    ),
    "embedding_bag offsets": lambda i: F.embedding_bag(torch.tensor([0, 1, 2, 3]), ROWS, i),
    "one_hot": lambda i: F.one_hot(i, 3),
    "nll_loss": lambda i: F.nll_loss(ROWS[:2], i),
    "nll_loss of one sample": lambda i: F.nll_loss(ROWS[0], i[0]),
    "nll_loss of images": lambda i: F.nll_loss(torch.ones(1, 3, 2, 1), i[None, :, None]),
    "cross_entropy": lambda i: F.cross_entropy(ROWS[:2], i),
    "cross_entropy of lines": lambda i: F.cross_entropy(torch.ones(1, 3, 2), i[None]),
    "cross_entropy smooth": lambda i: F.cross_entropy(ROWS[:2], i, label_smoothing=0.1),
    "cross_entropy weights": lambda i: F.cross_entropy(ROWS[:2], i, weight=torch.ones(3)),
    "cross_entropy none": lambda i: F.cross_entropy(ROWS[:2], i, reduction="none"),
    "cross_entropy ignoring -1": lambda i: F.cross_entropy(ROWS[:2], i, ignore_index=-1),
    "cross_entropy ignoring 9": lambda i: F.cross_entropy(ROWS[:2], i, ignore_index=9),
    "cross_entropy ignoring a huge one": lambda i: F.cross_entropy(ROWS[:2], i, ignore_index=HUGE),
    "multi_margin_loss": lambda i: F.multi_margin_loss(ROWS[:2], i),
    "multilabel_margin_loss": lambda i: F.multilabel_margin_loss(ROWS[:1], row(i)),
    "max_unpool2d": lambda i: F.max_unpool2d(torch.ones(1, 1, 1, 2), i.reshape(1, 1, 1, 2), 2),
    "ctc_loss input lengths": lambda i: F.ctc_loss(
        torch.zeros(3, 2, 3), torch.ones(2, 1, dtype=torch.long), i, torch.tensor([1, 1])
    ),
    "ctc_loss target lengths": lambda i: F.ctc_loss(
        torch.zeros(9, 2, 3), torch.ones(2, 3, dtype=torch.long), torch.tensor([9, 9]), i
    ),
    "x[i] without columns": lambda i: torch.zeros(4, 0)[i],
    "index_select without columns": lambda i: torch.zeros(4, 0).index_select(0, i),
    "index_add without columns": lambda i: torch.zeros(4, 0).index_add(0, i, torch.zeros(2, 0)),
    "index_fill without columns": lambda i: torch.zeros(4, 0).index_fill(0, i, 1.0),
    "embedding without columns": lambda i: F.embedding(i, torch.zeros(4, 0)),
    "no index": lambda i: ROWS[i[:0]] + F.embedding(i[:0], ROWS) + F.one_hot(i[:0], 3),
}


def outcome(call: Callable[[], torch.Tensor]) -> torch.Tensor | type[Exception]:
    try:
        return call().clone()
    except (IndexError, RuntimeError) as error:
        return type(error)


def require_same(op: Op, compiled: Op, values: torch.Tensor) -> None:
    """Both refuse the values (compiled: with an error of eager's class), or neither."""
    expected, received = outcome(lambda: op(values)), outcome(lambda: compiled(values))
    if isinstance(expected, torch.Tensor):
        assert isinstance(received, torch.Tensor), f"eager takes {values.tolist()}"
        torch.testing.assert_close(received, expected, rtol=1e-5, atol=1e-6)
    else:
        assert received is systolic.OutOfRangeError, f"eager refuses {values.tolist()}"
        assert issubclass(received, expected)


@pytest.mark.parametrize("name", OPS)
@pytest.mark.filterwarnings("ignore:The reduce argument")
@pytest.mark.filterwarnings("ignore:index_reduce")
def test_an_index_is_refused_where_eager_refuses_it(name: str) -> None:
    compiled = systolic.jit(OPS[name])
    for values in INDICES:
        require_same(OPS[name], compiled, torch.tensor(values))


@pytest.mark.parametrize("side", ["input", "target"])
def test_a_probability_is_refused_where_eager_refuses_it(side: str) -> None:
    def loss(p: torch.Tensor) -> torch.Tensor:
        half = torch.full_like(p, 0.5)
        return F.binary_cross_entropy(p, half) if side == "input" else F.binary_cross_entropy(half, p)

    compiled = systolic.jit(loss)
    for value in (0.0, -0.0, 0.5, 1.0, 1.0001, 5.0, -1e-30, float("nan"), float("inf")):
        require_same(loss, compiled, torch.tensor([0.5, value]))


def test_a_mask_has_to_select_as_many_elements_as_there_are_values() -> None:
    def put(mask: torch.Tensor) -> torch.Tensor:
        return ROWS.clone().index_put((mask,), torch.ones(2, 3))

    def put_one(mask: torch.Tensor) -> torch.Tensor:
        return ROWS.clone().index_put((mask,), torch.ones(3))

    def fill(mask: torch.Tensor) -> torch.Tensor:
        return LINE.masked_scatter(mask, torch.ones(2))

    for function in (put, put_one, fill):
        compiled = systolic.jit(function)
        for mask in ([1, 0, 1, 0], [0, 0, 0, 0], [1, 1, 1, 0], [0, 0, 0, 1]):
            require_same(function, compiled, torch.tensor(mask, dtype=torch.bool))


@pytest.mark.parametrize("function", ["soft labels", "all ignored", "one_hot of int32"])
def test_what_eager_does_not_check_is_not_checked(function: str) -> None:
    functions: dict[str, Op] = {
        "soft labels": lambda i: F.cross_entropy(ROWS[:2], 9 * ROWS[:2] + i.sum()),
        "all ignored": lambda i: F.cross_entropy(ROWS[:2], torch.full_like(i, -100), reduction="sum"),
        "one_hot of int32": lambda i: (i.int()[:, None] == torch.arange(3)).long(),
    }
    require_same(functions[function], systolic.jit(functions[function]), torch.tensor([0, 7]))


def test_one_hot_without_a_number_of_classes_asks_for_the_largest() -> None:
    compiled = systolic.jit(F.one_hot)
    for classes in ([0, 1], [2, 0], [1, 1]):
        require_same(F.one_hot, compiled, torch.tensor(classes))


def test_a_gradient_does_not_check_an_index_again() -> None:
    def step(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        leaf = x.detach().requires_grad_()
        (leaf[i].sum() + leaf.gather(0, row(i)).sum()).backward()
        assert leaf.grad is not None
        return leaf.grad

    compiled = systolic.jit(step)
    compiled(ROWS, torch.tensor([0, 1]))
    checks = compiled._called()[0].checks
    assert [check.op for check in checks] == ["index", "gather"]
