from __future__ import annotations

import copy
from typing import Any

import jax
import jax.numpy as jnp
import pytest
import torch
from compiler.step_check import JAX_CALL, check_step, count, gradients_of
from torch import nn
from torch.utils.checkpoint import checkpoint

import systolic
from systolic.compiler.kernels._jax_op import _FUNCTIONS


def swish(x: jax.Array, *, slope: float = 1.0) -> jax.Array:
    return x * jax.nn.sigmoid(slope * x)


def swish_torch(x: torch.Tensor, slope: float = 1.0) -> torch.Tensor:
    return x * torch.sigmoid(slope * x)


swish_op = systolic.jax_op(swish)
mixed = systolic.jax_op(lambda x, index, y: (jnp.take(x, index, axis=0) * y, jnp.argmax(x, axis=1), x.sum()))


def mixed_torch(x: torch.Tensor, index: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x[index] * y, x.argmax(1), x.sum()


def test_eager_results_and_gradients_equal_pytorch() -> None:
    x = torch.randn(3, 4, requires_grad=True)
    torch.testing.assert_close(swish_op(x, slope=2.0), swish_torch(x, 2.0))
    (ours,) = torch.autograd.grad(swish_op(x, slope=2.0).square().sum(), x)
    (theirs,) = torch.autograd.grad(swish_torch(x, 2.0).square().sum(), x)
    torch.testing.assert_close(ours, theirs)


def test_eager_double_precision_passes_gradcheck_of_both_orders() -> None:
    x = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    y = torch.randn(2, 2, dtype=torch.float64, requires_grad=True)
    op = systolic.jax_op(lambda a, b: (jnp.sin(a @ b), a.sum()))
    assert torch.autograd.gradcheck(op, (x, y))
    assert torch.autograd.gradgradcheck(op, (x, y))


def test_eager_complex_gradients_follow_pytorchs_convention() -> None:
    x = torch.randn(4, dtype=torch.complex128, requires_grad=True)
    op = systolic.jax_op(lambda a: a * a * jnp.conj(a))
    assert torch.autograd.gradcheck(op, (x,))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_eager_keeps_the_dtype(dtype: torch.dtype) -> None:
    x = torch.randn(5).to(dtype).requires_grad_()
    y = swish_op(x)
    y.sum().backward()
    assert y.dtype == dtype
    assert x.grad is not None
    assert x.grad.dtype == dtype


def test_compiled_equals_pytorch() -> None:
    x = torch.randn(3, 4, requires_grad=True)
    compiled = check_step(lambda a: swish_op(a * 2, slope=2.0), x)
    assert count(compiled, JAX_CALL) == 2
    ours, theirs = (gradients_of(f)([True], x.detach()) for f in (swish_op, swish_torch))
    torch.testing.assert_close(ours, theirs)


def test_integer_inputs_and_results_take_no_gradient() -> None:
    x, index, y = torch.randn(4, 3, requires_grad=True), torch.tensor([2, 0, 2]), torch.randn(3, 3, requires_grad=True)
    check_step(mixed, x, index, y)
    ours, theirs = (gradients_of(f)([True, False, True], x, index, y) for f in (mixed, mixed_torch))
    torch.testing.assert_close(ours, theirs)
    assert not mixed(x, index, y)[1].requires_grad


def test_only_wanted_gradients_are_computed() -> None:
    x, index, y = torch.randn(4, 3), torch.tensor([2, 0, 2]), torch.randn(3, 3, requires_grad=True)
    compiled = check_step(mixed, x, index, y)
    backward = [node for node in compiled.graph().nodes if node.target is JAX_CALL][-1]
    assert len(backward.meta["val"]) == 1


def test_a_pytree_of_arguments_and_results() -> None:
    op = systolic.jax_op(lambda weights, x: {"y": x @ weights["w"] + weights["b"], "none": None})
    weights = {"w": torch.randn(3, 2, requires_grad=True), "b": torch.randn(2)}
    x = torch.randn(4, 3)
    torch.testing.assert_close(op(weights, x)["y"], x @ weights["w"] + weights["b"])
    assert op(weights, x)["none"] is None


def test_two_calls_of_one_function_in_a_step_keep_their_own_residuals() -> None:
    x, y = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    check_step(lambda a, b: (swish_op(a) * swish_op(b), swish_op(swish_op(a))), x, y)


def test_forward_is_not_run_again_for_the_backward() -> None:
    op = systolic.jax_op(lambda x: jax.lax.scan(lambda c, _: (jnp.sin(c), None), x, None, length=7)[0])
    compiled = check_step(op, torch.randn(3, requires_grad=True))
    assert compiled.stablehlo().count("stablehlo.while") == 2


def penalty(function: Any, x: torch.Tensor) -> torch.Tensor:
    (gradient,) = torch.autograd.grad(function(x).sum(), x, create_graph=True)
    return gradient.square().sum() + function(x).sum()


def test_double_backward() -> None:
    x = torch.randn(5, requires_grad=True)
    check_step(lambda a: penalty(swish_op, a), x)
    ours, theirs = (gradients_of(lambda a, f=f: penalty(f, a))([True], x) for f in (swish_op, swish_torch))
    torch.testing.assert_close(ours, theirs)


def test_under_checkpointing() -> None:
    x = torch.randn(5, requires_grad=True)
    check_step(lambda a: checkpoint(lambda b: swish_op(torch.sin(swish_op(b))), a, use_reentrant=False), x)


def test_capturing_again_gives_the_same_program() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)
            self.label = "a"

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return swish_op(self.linear(x)) if self.label else x

    model = Scaled()

    @systolic.jit
    def step(x: torch.Tensor) -> torch.Tensor:
        loss = model(x).sum()
        loss.backward()
        model.zero_grad()
        return loss

    step(torch.ones(2, 3))
    model.label = "b"
    step(torch.ones(2, 3))
    assert len(step.compiles) == 2
    assert step.compile_count == 1


def test_in_a_module_that_trains_like_its_eager_copy() -> None:
    torch.manual_seed(0)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 4)
            self.activation = swish_op

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.activation(self.linear(x), slope=1.5)

    def make(model: nn.Module) -> Any:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

        def step(x: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        return step

    model = Model()
    eager, compiled = make(model), systolic.jit(make(copy.deepcopy(model)))
    for _ in range(5):
        x = torch.randn(6, 3)
        torch.testing.assert_close(compiled(x).cpu(), eager(x), rtol=1e-5, atol=1e-6)
    assert compiled.compile_count == 1


def test_without_inputs() -> None:
    op = systolic.jax_op(lambda *, n: jnp.arange(n, dtype=jnp.float32))
    torch.testing.assert_close(op(n=4), torch.arange(4.0))
    torch.testing.assert_close(systolic.jit(lambda x: x + op(n=4))(torch.ones(4)).cpu(), torch.arange(4.0) + 1)


def test_a_state_tensor_reached_through_a_closure_is_replaced() -> None:
    model = nn.Linear(3, 3)
    holder = type("Holder", (), {"weight": model.weight})()
    compiled = systolic.jit(lambda x: (swish_op(holder.weight) + model(x)).sum())
    first = compiled(torch.ones(3))
    with torch.no_grad():
        model.weight.mul_(2)
    assert compiled(torch.ones(3)).item() != first.item()


def test_library_ops_are_well_formed() -> None:
    systolic.jax_op(lambda x: x + 1)(torch.ones(2))
    number = len(_FUNCTIONS) - 1
    utils = ("test_schema", "test_faketensor")
    for x in (torch.ones(2, 7), torch.ones(3)):
        torch.library.opcheck(JAX_CALL, ([x], number, -1), test_utils=utils)
    torch.library.opcheck(torch.ops.systolic.next_key.default, (), test_utils=("test_schema",))


def test_a_number_by_position_is_refused() -> None:
    with pytest.raises(TypeError, match="swish takes tensors as positional arguments. Received: 2"):
        swish_op(torch.ones(2), 2)


def test_an_array_by_keyword_is_refused() -> None:
    with pytest.raises(TypeError, match="swish expects a hashable Python value for slope"):
        swish_op(torch.ones(2), slope=torch.ones(()))
    with pytest.raises(TypeError, match="tuples in place of lists"):
        swish_op(torch.ones(2), slope=[1.0])
