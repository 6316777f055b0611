"""Convolutions against eager PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from compiler.lowering.op_check import check_op, lower_and_run
from program_text import collective_sizes, optimized_programs

import systolic as L

pytestmark = pytest.mark.thin(3)

CASES: dict[str, tuple[Any, list[tuple[int, ...]], dict[str, Any]]] = {
    "1d": (F.conv1d, [(2, 4, 9), (6, 4, 3), (6,)], {}),
    "1d_unbatched": (F.conv1d, [(4, 9), (6, 4, 3), (6,)], {"padding": 1}),
    "1d_same": (F.conv1d, [(2, 4, 9), (6, 4, 3)], {"padding": "same", "dilation": 2}),
    "2d": (F.conv2d, [(2, 4, 9, 8), (6, 4, 3, 2), (6,)], {"stride": (2, 1), "padding": (1, 2)}),
    "2d_without_bias": (F.conv2d, [(2, 4, 9, 8), (6, 4, 3, 3)], {"stride": 2}),
    "2d_groups": (F.conv2d, [(2, 4, 9, 8), (6, 2, 3, 3), (6,)], {"groups": 2, "dilation": 2}),
    "2d_depthwise": (F.conv2d, [(2, 4, 9, 8), (8, 1, 3, 3), (8,)], {"groups": 4, "padding": 1}),
    "2d_depthwise_dilated": (
        F.conv2d,
        [(2, 3, 9, 8), (3, 1, 2, 3), (3,)],
        {"groups": 3, "padding": (0, 3), "stride": (2, 3), "dilation": (3, 2)},
    ),
    "2d_depthwise_multiplied": (F.conv2d, [(2, 3, 9, 8), (9, 1, 3, 2), (9,)], {"groups": 3, "padding": 1, "stride": (1, 2)}),
    "2d_depthwise_sees_only_zeros": (F.conv2d, [(2, 3, 4, 5), (3, 1, 2, 2), (3,)], {"groups": 3, "padding": 3}),
    "2d_depthwise_leaves_out_the_end": (F.conv2d, [(2, 3, 9, 8), (3, 1, 2, 2), (3,)], {"groups": 3, "stride": (4, 5)}),
    "2d_depthwise_strides_over_zeros": (
        F.conv2d,
        [(2, 3, 3, 4), (3, 1, 1, 2), (3,)],
        {"groups": 3, "padding": (2, 4), "stride": (3, 2), "dilation": (1, 3)},
    ),
    "2d_depthwise_large": (F.conv2d, [(2, 3, 10, 9), (3, 1, 9, 9), (3,)], {"groups": 3, "padding": 4}),
    "3d_depthwise": (F.conv3d, [(2, 4, 5, 4, 6), (4, 1, 3, 2, 3), (4,)], {"groups": 4, "padding": 1, "stride": (1, 2, 1)}),
    "1d_depthwise_multiplied": (F.conv1d, [(2, 4, 9), (8, 1, 3), (8,)], {"groups": 4, "padding": 1, "dilation": 2}),
    "1d_depthwise": (F.conv1d, [(2, 4, 9), (4, 1, 3), (4,)], {"groups": 4, "padding": 2}),
    "2d_pointwise_groups": (F.conv2d, [(2, 4, 5, 5), (8, 2, 1, 1), (8,)], {"groups": 2, "padding": 1}),
    "2d_pointwise": (F.conv2d, [(2, 4, 5, 5), (8, 4, 1, 1), (8,)], {"stride": 2}),
    "3d": (F.conv3d, [(2, 3, 5, 6, 7), (4, 3, 3, 2, 1), (4,)], {"stride": (1, 2, 1), "dilation": (2, 1, 1)}),
    "transposed_1d": (F.conv_transpose1d, [(2, 4, 9), (4, 6, 3), (6,)], {"stride": 2, "padding": 1}),
    "transposed_2d": (
        F.conv_transpose2d,
        [(2, 4, 5, 6), (4, 6, 3, 2), (6,)],
        {"stride": (2, 3), "padding": (1, 0), "output_padding": (1, 2)},
    ),
    "transposed_2d_groups": (
        F.conv_transpose2d,
        [(2, 4, 5, 6), (4, 3, 3, 3), (6,)],
        {"stride": 2, "groups": 2, "dilation": 2, "output_padding": 1},
    ),
    "transposed_2d_crops": (F.conv_transpose2d, [(2, 4, 5, 6), (4, 3, 1, 1)], {"padding": 1}),
    "transposed_3d": (F.conv_transpose3d, [(1, 2, 3, 4, 3), (2, 3, 2, 2, 3), (3,)], {"stride": 2}),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("trained", ["all", "weights"])
def test_convolution(case: str, trained: str) -> None:
    function, shapes, options = CASES[case]
    torch.manual_seed(0)
    tensors = [torch.randn(shape, requires_grad=trained == "all" or i > 0) for i, shape in enumerate(shapes)]
    check_op(lambda *xs: function(*xs, **options), *tensors, atol=1e-5)


def test_gradients_of_the_input_only() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 6, 6, requires_grad=True)
    check_op(lambda x, w, b: F.conv2d(x, w, b), x, torch.randn(4, 3, 3, 3), torch.randn(4), atol=1e-5)


def test_gradients_of_a_depthwise_weight_in_float32_are_as_near_as_pytorchs() -> None:
    """Sums over 25,088 places: added one after the other they would be ten times as far from the sums in float64."""
    torch.manual_seed(0)
    tensors = torch.randn(8, 16, 56, 56), torch.zeros(16, 1, 3, 3), torch.randn(8, 16, 56, 56)

    def gradient(x: torch.Tensor, weight: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
        leaf = weight.detach().requires_grad_()
        return torch.autograd.grad(F.conv2d(x, leaf, padding=1, groups=16), leaf, grad)[0]

    exact = gradient(*(x.double() for x in tensors))
    compiled = torch.from_numpy(lower_and_run(gradient, *tensors)[0].copy())
    assert (compiled - exact).abs().max() <= 2 * (gradient(*tensors) - exact).abs().max()


def test_bfloat16() -> None:
    torch.manual_seed(0)
    tensors = [torch.randn(shape).to(torch.bfloat16).requires_grad_() for shape in [(2, 4, 6, 6), (5, 4, 3, 3), (5,)]]
    check_op(lambda x, w, b: F.conv2d(x, w, b, padding=1), *tensors, rtol=2e-2, atol=5e-2)


def test_empty_batch() -> None:
    check_op(lambda x, w: F.conv2d(x, w), torch.randn(0, 3, 6, 6), torch.randn(4, 3, 3, 3))


def test_double() -> None:
    torch.manual_seed(0)
    tensors = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in [(2, 4, 6, 6), (5, 4, 3, 3)]]
    check_op(lambda x, w: F.conv2d(x, w, padding=1), *tensors, rtol=1e-10)


class Separable(L.LightningModule):
    """A depthwise convolution between what such networks have around it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = torch.nn.Conv2d(3, 64, 1), torch.nn.Linear(64, 4)
        self.depthwise = torch.nn.Conv2d(64, 64, 3, padding=1, groups=64, bias=False)
        self.norms = torch.nn.ModuleList(torch.nn.BatchNorm2d(64) for _ in range(2))

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        seen = F.relu6(self.norms[0](self.first(batch[0])))
        return self.last(F.relu6(self.norms[1](self.depthwise(seen))).mean((2, 3))).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.1)


@pytest.mark.parametrize("devices", [1, 8])
def test_depthwise_images_are_made_once_and_by_the_core_that_has_them(devices: int) -> None:
    images = torch.utils.data.TensorDataset(torch.randn(16, 3, 24, 24))
    options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    with optimized_programs() as texts:
        trainer = L.Trainer(accelerator="cpu", devices=devices, max_epochs=1, **options)
        trainer.fit(Separable(), torch.utils.data.DataLoader(images, batch_size=16 // devices))
    step = max(texts, key=len)
    loops_over_taps = [body for body in step.split("\n\n") if body.count(" slice(") >= 9]
    assert len(loops_over_taps) == 3  # of the image, of its gradient, of the weight's
    assert collective_sizes([step], "all-gather") == []
