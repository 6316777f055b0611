"""Ops of `torch.library.custom_op` in a compiled step: what their functions do is traced, against eager PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from compiler.step_check import check_step
from torch.library import custom_op

import systolic


@custom_op("systolic_tests::by_numpy", mutates_args=())
def by_numpy(x: torch.Tensor, factor: float) -> torch.Tensor:
    return torch.from_numpy(np.sin(factor * x.detach().numpy()))


@by_numpy.register_fake
def _(x: torch.Tensor, factor: float) -> torch.Tensor:
    return torch.empty_like(x)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(inputs[0])
    ctx.factor = inputs[1]


def _by_numpy_backward(ctx: Any, gradient: torch.Tensor) -> Any:
    (x,) = ctx.saved_tensors
    return gradient * torch.cos(ctx.factor * x) * ctx.factor, None


by_numpy.register_autograd(_by_numpy_backward, setup_context=_keep)


@custom_op("systolic_tests::with_writes", mutates_args=())
def with_writes(x: torch.Tensor, rows: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    result = x.clone()
    result[rows] += 1
    first = result[0]
    result.mul_(2)
    return first.clone(), result


@with_writes.register_fake
def _(x: torch.Tensor, rows: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(x[0]), torch.empty_like(x)


@custom_op("systolic_tests::of_two_kinds", mutates_args=(), device_types="cpu")
def of_two_kinds(x: torch.Tensor) -> torch.Tensor:
    return x + 1


@of_two_kinds.register_kernel("cuda")
def _(x: torch.Tensor) -> torch.Tensor:
    return x + 2


@custom_op("systolic_tests::writes", mutates_args=("x",))
def writes(x: torch.Tensor) -> None:
    x.mul_(2)


@custom_op("systolic_tests::writes_and_adds", mutates_args=("x",))
def writes_and_adds(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.mul_(2)
    return x + y


@writes_and_adds.register_fake
def _(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@custom_op("systolic_tests::writes_for_others", mutates_args=("x",), device_types="cuda")
def writes_for_others(x: torch.Tensor) -> None:
    x.mul_(2)


@custom_op("systolic_tests::of_others", mutates_args=(), device_types="cuda")
def of_others(x: torch.Tensor) -> torch.Tensor:
    return x + 1


@of_others.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def test_a_function_of_numpys_with_a_gradient() -> None:
    check_step(lambda x: by_numpy(x, 2.0), torch.randn(4, 3, requires_grad=True))


def test_called_by_its_name() -> None:
    check_step(lambda x: torch.ops.systolic_tests.by_numpy(x.exp(), 0.5).sum(), torch.randn(4, requires_grad=True))


def test_writes_to_what_the_function_made() -> None:
    x = torch.randn(4, 3)
    for got, want in zip(systolic.jit(lambda x: with_writes(x, [0, 2]))(x), with_writes(x, [0, 2]), strict=True):
        torch.testing.assert_close(got.cpu(), want)


def test_the_processors_own_function() -> None:
    x = torch.randn(4)
    torch.testing.assert_close(systolic.jit(of_two_kinds)(x).cpu(), of_two_kinds(x))


def test_in_a_training_step_of_eight_cores() -> None:
    class Module(systolic.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 3)

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            return by_numpy(self.layer(batch), 2.0).square().mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    torch.manual_seed(1)
    module, data = Module(), torch.randn(16, 3)
    weight = module.layer.weight.detach().clone().requires_grad_()
    bias = module.layer.bias.detach().clone().requires_grad_()
    loss = by_numpy(data @ weight.T + bias, 2.0).square().mean()
    expected = weight - 0.1 * torch.autograd.grad(loss, weight)[0]
    options: dict[str, Any] = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = systolic.Trainer(accelerator="cpu", devices=8, max_epochs=1, enable_model_summary=False, **options)
    trainer.fit(module, torch.utils.data.DataLoader(data, batch_size=2))  # pyright: ignore[reportArgumentType]
    torch.testing.assert_close(module.layer.weight.detach().cpu(), expected.detach())


def test_writes_to_arguments() -> None:
    def step(x: torch.Tensor) -> Any:
        whole = x.clone()
        writes(whole)
        writes(whole[0])
        return whole, writes_and_adds(whole, whole.clone())

    x = torch.randn(3, 2)
    for got, want in zip(systolic.jit(step)(x), step(x), strict=True):
        torch.testing.assert_close(got.cpu(), want)


def test_writes_to_a_buffer() -> None:
    module = torch.nn.Module()
    module.register_buffer("count", torch.ones(2))

    def step(x: torch.Tensor) -> torch.Tensor:
        writes(module.count)
        return x + module.count

    compiled = systolic.jit(step)
    for count in (2.0, 4.0, 8.0):
        torch.testing.assert_close(compiled(torch.zeros(2)).cpu(), torch.full((2,), count))
    torch.testing.assert_close(module.count.cpu(), torch.full((2,), 8.0))


@pytest.mark.parametrize("op", [of_others, writes_for_others])
def test_ops_for_other_devices_alone_are_refused_with_the_line(op: Any) -> None:
    with pytest.raises(systolic.UnsupportedOpError, match=r"test_custom_ops\.py"):
        systolic.jit(lambda x: [op(x.clone())])(torch.randn(3))
