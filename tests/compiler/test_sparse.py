"""Sparse tensors in compiled steps: what they give equals eager PyTorch, on one core and on eight."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import jax
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import systolic
from systolic.compiler import CaptureError, UnsupportedOpError
from systolic.exceptions import OutOfRangeError

Function = Callable[[torch.Tensor], Any]

pytestmark = pytest.mark.filterwarnings("ignore:Sparse")  # PyTorch's, of invariants and of its CSR tensors

EDGES = torch.tensor([[0, 1, 2, 2, 4, 1], [1, 0, 3, 3, 4, 2]])  # a place twice, an empty row and an empty column
VALUES = torch.tensor([1.0, 2.0, 3.0, 4.0, -1.0, 0.5])
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    COORDINATES = torch.sparse_coo_tensor(EDGES, VALUES, (5, 6))
    COALESCED = COORDINATES.coalesce()
    ROWS = COALESCED.to_sparse_csr()
    BATCHED = torch.sparse_coo_tensor([[0, 0, 1], [1, 2, 0], [3, 0, 5]], [1.0, 2.0, 3.0], (2, 5, 6))


def _made(x: torch.Tensor) -> torch.Tensor:
    return torch.sparse_coo_tensor(EDGES, x[0, :6], (5, 6))


def _attention(x: torch.Tensor) -> torch.Tensor:
    """A layer of a graph attention network, as written with sparse tensors."""
    scores = F.leaky_relu(x[EDGES[0]].sum(1) + x[EDGES[1]].sum(1))
    weights = torch.sparse.softmax(torch.sparse_coo_tensor(EDGES, scores, (6, 6)), dim=1)
    return F.elu(torch.sparse.mm(weights, x))


class _Product(torch.autograd.Function):
    """A product of which the sparse matrix gets a sparse gradient, as in pyGAT."""

    @staticmethod
    def forward(ctx: Any, indices: torch.Tensor, values: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        matrix = torch.sparse_coo_tensor(indices, values, (6, 6))
        ctx.save_for_backward(matrix, other)
        return torch.matmul(matrix, other)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        matrix, other = ctx.saved_tensors
        dense = gradient.matmul(other.t())
        edges = matrix._indices()[0, :] * 6 + matrix._indices()[1, :]
        return None, dense.view(-1)[edges], matrix.t().matmul(gradient)


FUNCTIONS: dict[str, Function] = {
    "sparse.mm": lambda x: torch.sparse.mm(COORDINATES, x),
    "@": lambda x: COALESCED @ x,
    "spmm": lambda x: torch.spmm(COALESCED, x),
    "a vector": lambda x: torch.mv(COALESCED, x[:, 0]) + COALESCED @ x[:, 1],
    "behind": lambda x: x.T[:, :5] @ COALESCED,
    "rows": lambda x: ROWS @ x,
    "reduced": lambda x: [torch.sparse.mm(ROWS, x, reduce) for reduce in ("mean", "amax", "amin", "sum")],
    "of batches": lambda x: torch.bmm(BATCHED, torch.stack([x, x * 2])),
    "added": lambda x: torch.sparse.addmm(x[:5], COALESCED, x, beta=0.5, alpha=2.0) + torch.addmm(x[:5], COALESCED, x),
    "a linear layer": lambda x: F.linear(COALESCED, x[:, :6].T, x[0]) + F.linear(_made(x), x),
    "made of values": lambda x: _made(x) @ x,
    "made without a size": lambda x: torch.sparse_coo_tensor(EDGES, x[0, :6]) @ x[:5],
    "made of rows": lambda x: torch.sparse_csr_tensor([0, 2, 2, 3], [0, 2, 1], x[0, :3], (3, 6)) @ x,
    "of a dense one": lambda x: torch.sparse.mm((x * (x > 0.5)).to_sparse(), x.T),
    "dense again": lambda x: (_made(x).to_dense(), COORDINATES.to_dense() * x[0]),
    "transposed": lambda x: (_made(x).t() @ x[:5], COALESCED.transpose(0, 1) @ x[:5], COALESCED.T @ x[:5]),
    "scaled": lambda x: ((_made(x) * 2 / x.abs().max()) @ x, (3 * -COALESCED) @ x),
    "by element": lambda x: (COALESCED * x.detach()[:5, :6]).to_dense(),
    "two sums": lambda x: ((COALESCED + _made(x)) @ x, (COALESCED - _made(x)).to_dense(), x[:5, :6] + COALESCED),
    "sums": lambda x: (torch.sparse.sum(_made(x)), torch.sparse.sum(_made(x), 0).to_dense(), COALESCED.sum(1).to_dense()),
    "softmax": lambda x: (torch.sparse.softmax(_made(x), 1).to_dense(), torch.sparse.log_softmax(_made(x), 0).to_dense()),
    "coalesced": lambda x: (_made(x).coalesce().values(), _made(x).coalesce().indices(), _made(x).coalesce() @ x),
    "elements": lambda x: (COALESCED.values() * 2, COALESCED.indices() + 1, COALESCED._nnz() * x, _made(x)._values()),
    "each element": lambda x: (
        _made(x).abs().to_dense(),
        _made(x).coalesce().pow(2).to_dense(),
        torch.tanh(_made(x.detach())).to_dense(),
    ),
    "kinds": lambda x: x * (COALESCED.shape[0] + COALESCED.size(1) + COALESCED.dim() + len(COALESCED) + COALESCED.sparse_dim()),
    "flags": lambda x: x * (2 if COALESCED.is_sparse and ROWS.layout is torch.sparse_csr and COALESCED.is_coalesced() else 3),
    "other dtypes": lambda x: (_made(x.detach()).double() @ x.double(), COALESCED.to(torch.float64).to_dense()),
    "attention": _attention,
    "a function of its own": lambda x: _Product.apply(EDGES, x[0, :6], x),
    "dense dimensions": lambda x: torch.sparse_coo_tensor(EDGES[:1], x[:6, :6], (5, 6)).to_dense(),
    "an isinstance": lambda x: x * (2 if isinstance(_made(x), torch.Tensor) else 3),
}


def results(function: Function, wrap: Callable[[Any], Any]) -> list[torch.Tensor]:
    """What a function gives, and the gradient of its input, of three inputs."""

    def step(x: torch.Tensor) -> list[torch.Tensor]:
        given = function(x)
        found = list(given) if isinstance(given, tuple | list) else [given]
        real = [one.float().pow(2).sum() for one in found if one.requires_grad]
        return [one.detach() for one in found] + (list(torch.autograd.grad(sum(real), x)) if real else [])

    own = wrap(lambda x: step(x.detach().requires_grad_()))
    generator = torch.Generator().manual_seed(0)
    return [one.cpu() for _ in range(3) for one in own(torch.randn(6, 6, generator=generator))]


@pytest.mark.thin(5, 2)
@pytest.mark.parametrize("devices", [1, 8])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_equal_eager_ones(name: str, devices: int) -> None:
    wanted = results(FUNCTIONS[name], lambda function: function)
    found = results(FUNCTIONS[name], lambda function: systolic.jit(function, devices=jax.devices()[:devices]))
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("function", "error", "text"),
    [
        (lambda x: torch.sparse.mm(COALESCED, COALESCED.t()), UnsupportedOpError, "two sparse matrices"),
        (lambda x: COALESCED[0], UnsupportedOpError, "__getitem__"),
        (lambda x: torch.cumsum(_made(x), 0), UnsupportedOpError, "cumsum"),
        (lambda x: _made(x), CaptureError, "sparse"),
        (lambda x: COALESCED @ x[:3], RuntimeError, "reduction dim|cannot be multiplied"),
        (lambda x: COALESCED @ x.double(), RuntimeError, "dtype"),
        (lambda x: _made(x).values(), RuntimeError, "uncoalesced"),
    ],
)
def test_what_is_refused_is_named(function: Function, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        systolic.jit(function)(torch.randn(6, 6))


def test_an_index_outside_is_an_error() -> None:
    compiled: Any = systolic.jit(lambda x, edges: torch.sparse_coo_tensor(edges, x[0], (6, 6)) @ x)
    with pytest.raises(OutOfRangeError):
        compiled(torch.randn(6, 6), torch.tensor([[0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 6]])).cpu()


class _Graph(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("edges", COALESCED.clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.edges @ x


def test_changes_between_steps_are_seen() -> None:
    module, x = _Graph(), torch.randn(6, 6)
    compiled: Any = systolic.jit(module)
    torch.testing.assert_close(compiled(x).cpu(), COALESCED @ x)
    module.edges.values().mul_(3)
    torch.testing.assert_close(compiled(x).cpu(), (COALESCED @ x) * 3)
    module.edges = torch.sparse_coo_tensor(EDGES[:, :2], VALUES[:2], (5, 6)).coalesce()
    torch.testing.assert_close(compiled(x).cpu(), module.edges @ x)
