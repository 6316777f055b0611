from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from compiler.lowering.op_check import check_op

pytestmark = pytest.mark.thin(3)

T = torch.Tensor

KINKS = [-7.0, -3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0, 6.0, 20.0, 21.0, -21.0]

ACTIVATIONS: dict[str, Callable[[T], T]] = {
    "relu": F.relu,
    "relu6": F.relu6,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "mish": F.mish,
    "elu": lambda x: F.elu(x, 0.7),
    "celu": lambda x: F.celu(x, 0.7),
    "selu": F.selu,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "hardtanh": lambda x: F.hardtanh(x, -0.5, 0.5),
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "hardshrink": F.hardshrink,
    "softshrink": F.softshrink,
    "tanhshrink": F.tanhshrink,
    "softplus": F.softplus,
    "softplus_beta": lambda x: F.softplus(x, 2.0, 5.0),
    "softsign": F.softsign,
    "log_sigmoid": F.logsigmoid,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "threshold": lambda x: F.threshold(x, 0.5, -3.0),
    "rrelu": lambda x: F.rrelu(x, training=False),
}


@pytest.mark.parametrize("function", ACTIVATIONS.values(), ids=ACTIVATIONS)
def test_activation(function: Callable[[T], T]) -> None:
    torch.manual_seed(0)
    check_op(function, (torch.randn(4, 7) * 2).requires_grad_())
    check_op(function, torch.tensor(KINKS, requires_grad=True))
    check_op(function, torch.tensor(0.3, requires_grad=True))


@pytest.mark.parametrize("function", ACTIVATIONS.values(), ids=ACTIVATIONS)
def test_activation_in_bfloat16(function: Callable[[T], T]) -> None:
    torch.manual_seed(0)
    check_op(function, torch.randn(4, 7).bfloat16(), rtol=8e-3)
    # eager rounds between the ops of some gradients
    check_op(function, torch.randn(4, 7).bfloat16().requires_grad_(), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_glu(dim: int) -> None:
    torch.manual_seed(0)
    check_op(lambda x: F.glu(x, dim), torch.randn(4, 6, requires_grad=True))


@pytest.mark.parametrize("parameters", [1, 3])
def test_prelu(parameters: int) -> None:
    torch.manual_seed(0)
    check_op(F.prelu, torch.randn(2, 3, 4, requires_grad=True), torch.rand(parameters, requires_grad=True))


def test_swiglu_and_inplace_forms() -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 8, requires_grad=True)
    check_op(lambda v: F.silu(v[:, :4]) * v[:, 4:], x)
    check_op(lambda v: F.relu_(v * 1.0) + F.elu_(v * 1.0), x)
    check_op(lambda v: F.leaky_relu_(v * 2.0, 0.1) + F.hardtanh_(v * 2.0), x)


@pytest.mark.parametrize("softmax", [F.softmax, F.log_softmax, F.softmin], ids=lambda f: f.__name__)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_softmax(softmax: Callable[..., T], dim: int) -> None:
    torch.manual_seed(0)
    check_op(lambda x: softmax(x, dim), (torch.randn(3, 5, 4) * 3).requires_grad_())


def test_softmax_edges() -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 5)
    x[0, :3] = -float("inf")
    check_op(lambda v: F.softmax(v, -1), x)
    check_op(lambda v: F.log_softmax(v, -1), x)
    check_op(lambda v: F.softmax(v, 0), torch.tensor(2.0, requires_grad=True))
    check_op(lambda v: F.softmax(v, -1, dtype=torch.float32), torch.randn(3, 5).bfloat16().requires_grad_(), rtol=1e-2)
    check_op(lambda v: F.log_softmax(v, -1), torch.randn(3, 5).bfloat16().requires_grad_(), rtol=1e-2, atol=1e-2)
    x[1] = -float("inf")
    check_op(lambda v: torch.ops.aten._safe_softmax(v, -1), x)
