"""Chains of image ops in channels-last form against eager PyTorch, and the programs that they become."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import pytest
import torch
import torch.nn.functional as F
from compiler.lowering.op_check import check_op, to_jax
from torch._subclasses.functional_tensor import dispatch_functionalize
from torch.fx.experimental.proxy_tensor import make_fx

from systolic.compiler.lowering import LoweringContext, find_lowering, interpret, register_lowering
from systolic.compiler.lowering._channels_last import ChannelsLast, channels_last, ordinary

pytestmark = pytest.mark.thin(4)

aten = torch.ops.aten


def conv(x: torch.Tensor, channels: int, size: int = 3, **options: Any) -> torch.Tensor:
    weight = torch.sin(torch.arange(channels * x.shape[1] * size * size, dtype=torch.float32)) / x.shape[1]
    options.setdefault("padding", size // 2)
    return F.conv2d(x, weight.reshape(channels, x.shape[1], size, size).to(x.dtype), **options)


def norm(x: torch.Tensor) -> torch.Tensor:
    return F.batch_norm(x, None, None, training=True)


CHAINS: dict[str, Callable[[torch.Tensor], Any]] = {
    "relu_chain": lambda x: conv(F.relu(norm(conv(x, 4))), 5),
    "residual": lambda x: F.relu(conv(conv(x, 4), 4) + conv(x, 4, 1)),
    "input_added": lambda x: x + conv(x, 3),
    "per_channel_3d": lambda x: conv(x, 4) * torch.arange(4.0).reshape(4, 1, 1) + torch.ones(1, 4, 1, 1),
    "per_row": lambda x: conv(x, 4) * torch.arange(float(x.shape[-2] * x.shape[-1])).reshape(x.shape[-2:]),
    "per_column": lambda x: conv(x, 4) - torch.arange(float(x.shape[-1])),
    "to_five_dimensions": lambda x: conv(x, 4) * torch.arange(2.0).reshape(2, 1, 1, 1, 1),
    "zero_dim": lambda x: conv(x, 4) * x.sum().double(),
    "squeeze_and_excite": lambda x: conv(x, 4) * torch.sigmoid(conv(F.adaptive_avg_pool2d(conv(x, 4), 1), 4, 1)),
    "activations": lambda x: F.silu(conv(x, 4)) + F.gelu(conv(x, 4)) + F.hardswish(conv(x, 4)) + F.elu(conv(x, 4)),
    "prelu": lambda x: F.prelu(conv(x, 4), torch.arange(4.0) / 4),
    "relu6": lambda x: F.relu6(conv(x, 4)),
    "where": lambda x: torch.where(conv(x, 4) > 0, conv(x, 4), torch.zeros(())),
    "comparison": lambda x: (conv(x, 4) > 0).to(torch.int32),
    "frexp": lambda x: tuple(torch.frexp(conv(x, 4).detach())),
    "max_pool": lambda x: F.max_pool2d(conv(x, 4), 3, 2, 1),
    "max_pool_indices": lambda x: F.max_pool2d(conv(x, 4), (2, 3), return_indices=True),
    "max_pool_dilated": lambda x: F.max_pool2d(conv(x, 4), 2, 1, 0, 2),
    "max_pool_ceil": lambda x: F.max_pool2d(conv(x, 4), 2, 3, 1, ceil_mode=True),
    "unpool": lambda x: F.max_unpool2d(*F.max_pool2d(conv(x, 4), 2, return_indices=True), 2),
    "avg_pool": lambda x: F.avg_pool2d(conv(x, 4), (3, 2), 2, 1, count_include_pad=False),
    "avg_pool_ceil": lambda x: F.avg_pool2d(conv(x, 4), 3, (2, 1), 1, ceil_mode=True),
    "adaptive_avg_pool": lambda x: F.adaptive_avg_pool2d(conv(x, 4), (3, 4)),
    "adaptive_max_pool": lambda x: F.adaptive_max_pool2d(conv(x, 4), (3, 4), return_indices=True),
    "spatial_mean": lambda x: conv(x, 4).mean((2, 3)),
    "kept_mean": lambda x: conv(x, 4) - conv(x, 4).mean((-1, -2), keepdim=True),
    "height_mean": lambda x: conv(x, 4).mean(2),
    "channel_sum": lambda x: conv(x, 4).sum(1),
    "batch_sum": lambda x: conv(x, 4).sum((0, 2, 3)),
    "single_dim": lambda x: conv(x, 4).sum(0),
    "amax": lambda x: conv(x, 4).amax((2, 3)),
    "variance": lambda x: torch.var_mean(conv(x, 4), (1, 3), keepdim=True),
    "whole_sum": lambda x: conv(x, 4).sum(),
    "cat_channels": lambda x: torch.cat([conv(x, 4), x, conv(x, 2)], 1),
    "cat_width": lambda x: conv(torch.cat([conv(x, 4), conv(x, 4)], -1), 2),
    "cat_empty_vector": lambda x: torch.cat([conv(x, 4), torch.zeros(0)], 0),
    "slices": lambda x: conv(x, 4)[:, 1:3, ::2, -3:],
    "split": lambda x: [F.relu(part) for part in conv(x, 6).split(2, 1)],
    "chunks_of_sizes": lambda x: [F.relu(part) for part in conv(x, 6).split([1, 5], -3)],
    "flattened": lambda x: conv(x, 4).flatten(1),
    "permuted": lambda x: F.layer_norm(conv(x, 4).permute(0, 2, 3, 1), (4,)),
    "group_norm": lambda x: F.group_norm(conv(x, 4), 2),
    "group_norm_affine": lambda x: conv(F.group_norm(conv(x, 4), 2, torch.arange(4.0), torch.arange(4.0) - 1), 3),
    "padded": lambda x: conv(F.pad(conv(x, 4), (1, 2, 0, 3)), 2),
    "padded_channels_and_cropped": lambda x: conv(F.pad(conv(x, 4), (-1, 0, 2, -1, 1, 2), value=2.0), 2),
    "avg_pool_of_more_than_there_is": lambda x: conv(F.avg_pool2d(conv(x, 4), 20, ceil_mode=True), 3, 1),
    "avg_pool_of_padding_and_all": lambda x: F.avg_pool2d(conv(x, 4), (9, 10), padding=1),
    "max_pool_of_all": lambda x: F.max_pool2d(conv(x, 4), (9, 10), padding=(1, 1)),
    "upsampled_bilinear": lambda x: conv(F.interpolate(conv(x, 4), size=(9, 5), mode="bilinear"), 2),
    "downsampled_nearest": lambda x: conv(F.interpolate(conv(x, 4), scale_factor=0.5), 2),
    "softmax_over_channels": lambda x: conv(x, 4).softmax(1),
    "upsampled": lambda x: conv(F.interpolate(conv(x, 4), scale_factor=2), 2),
    "shuffled": lambda x: F.pixel_shuffle(conv(x, 8), 2),
    "transposed": lambda x: F.conv_transpose2d(F.relu(conv(x, 4)), torch.ones(4, 2, 2, 2), stride=2),
    "depthwise": lambda x: conv(F.conv2d(conv(x, 4), torch.ones(4, 1, 3, 3), padding=1, groups=4), 2, 1),
    "weight_from_convolution": lambda x: F.conv2d(x, conv(torch.ones(2, 3, 5, 5), 3)),
    "strided_view": lambda x: torch.as_strided(conv(x, 4), (2, 3), (4, 1), 1),
    "spatial_1d": lambda x: F.conv1d(conv(x, 4).flatten(2), torch.ones(2, 4, 3)),
}


@pytest.mark.parametrize("chain", CHAINS)
def test_chain(chain: str) -> None:
    torch.manual_seed(0)
    check_op(CHAINS[chain], torch.randn(2, 3, 7, 8, requires_grad=True), atol=2e-5)


@pytest.mark.parametrize("chain", ["relu_chain", "residual", "max_pool", "kept_mean"])
def test_bfloat16(chain: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 6, 6).to(torch.bfloat16).requires_grad_()
    # eight bits: a rounding of values up to 4 is 2**-7 of them, and a chain of norm and convolution makes a few of them
    check_op(CHAINS[chain], x, rtol=2e-2, atol=0.06)


def block(x: torch.Tensor, first: torch.Tensor, second: torch.Tensor, short: torch.Tensor) -> torch.Tensor:
    h = F.relu(norm(F.conv2d(x, first, stride=2, padding=1)))
    return F.relu(norm(F.conv2d(h, second, padding=1)) + norm(F.conv2d(x, short, stride=2)))


def test_residual_net() -> None:
    torch.manual_seed(0)
    shapes = [(4, 3, 12, 12), (8, 3, 3, 3), (8, 8, 3, 3), (8, 3, 1, 1), (16, 8, 3, 3), (16, 16, 3, 3), (16, 8, 1, 1), (10, 16)]
    tensors = [(torch.randn(shape) * (0.3 if i else 1)).requires_grad_() for i, shape in enumerate(shapes)]

    def net(x: torch.Tensor, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, head: Any) -> torch.Tensor:
        h = block(F.max_pool2d(x, 3, 1, 1), a, b, c)
        return F.cross_entropy(F.linear(block(h, d, e, f).mean((2, 3)), head), torch.arange(4))

    check_op(net, *tensors, atol=1e-5)


def program(function: Callable[..., Any], *tensors: torch.Tensor, shards: int = 1, platform: str = "cpu") -> Any:
    graph = make_fx(dispatch_functionalize(function), tracing_mode="fake")(*tensors).graph
    context = LoweringContext(batch_shards=shards, platform=platform)
    return jax.jit(lambda *xs: interpret(graph, xs, context)).lower(*map(to_jax, tensors))


@pytest.fixture(autouse=True)
def wide_numbers() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def four_layers(x: torch.Tensor, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    return F.conv2d(F.relu(norm(F.conv2d(x, first, padding=1))), second, padding=1)


CHAIN = [torch.randn(4, 5, 12, 12), torch.randn(6, 5, 3, 3), torch.randn(7, 6, 3, 3)]
SEED = torch.randn(4, 7, 12, 12)


def gradients(x: torch.Tensor, first: torch.Tensor, second: torch.Tensor, seed: torch.Tensor) -> Any:
    leaves = [t.detach().requires_grad_() for t in (x, first, second)]
    return torch.autograd.grad(four_layers(*leaves), leaves, seed)


def image_gradient(x: torch.Tensor, first: torch.Tensor, second: torch.Tensor, seed: torch.Tensor) -> Any:
    x = x.detach().requires_grad_()
    return torch.autograd.grad(four_layers(x, first, second), x, seed)


PROGRAMS: dict[str, tuple[Callable[..., Any], list[torch.Tensor], int]] = {
    "forward: image in, result out": (four_layers, CHAIN, 2),
    "input: image and its result's gradient in, its own gradient out": (image_gradient, [*CHAIN, SEED], 3),
    "all": (gradients, [*CHAIN, SEED], 3),
}


@pytest.mark.parametrize("case", PROGRAMS)
def test_activations_are_transposed_at_the_boundaries_only(case: str) -> None:
    function, tensors, boundaries = PROGRAMS[case]
    text = program(function, *tensors).as_text()
    transposed = re.findall(r"stablehlo.transpose (%\w+), .*12x12x", text)
    assert len(set(transposed)) == boundaries


@pytest.mark.parametrize(("case", "boundaries"), [(case, PROGRAMS[case][2]) for case in list(PROGRAMS)[:2]])
def test_compiled_program_transposes_at_the_boundaries_only(case: str, boundaries: int) -> None:
    """Without gradients of weights: there XLA itself turns both images around, as one of them is the kernel."""
    function, tensors, _ = PROGRAMS[case]
    compiled = program(function, *tensors).compile().as_text()
    moved = re.findall(r"= f32\[([\d,]+)\]\S* transpose\(", compiled)
    assert sum(shape.split(",").count("12") == 2 for shape in moved) == boundaries


def test_graph_without_convolutions_has_no_transposes() -> None:
    text = program(lambda x: F.max_pool2d(F.relu(norm(x)), 2).mean((2, 3)), torch.randn(2, 3, 8, 8)).as_text()
    assert "transpose" not in text


@pytest.mark.parametrize("platform", ["cpu", "tpu"])
@pytest.mark.parametrize("groups", [1, 3, 6])
@pytest.mark.parametrize("size", [1, 3])
def test_every_platform_computes_the_same(platform: str, groups: int, size: int) -> None:
    torch.manual_seed(0)
    leaves = [torch.randn(2, 6, 7, 7, requires_grad=True), torch.randn(6, 6 // groups, size, size, requires_grad=True)]

    def function(x: torch.Tensor, weight: torch.Tensor) -> Any:
        inputs = [t.detach().requires_grad_() for t in (x, weight)]
        out = F.conv2d(*inputs, stride=2, padding=1, groups=groups)
        return torch.autograd.grad((out * out.detach().cos()).sum(), inputs)

    received = program(function, *leaves, platform=platform).compile()(*map(to_jax, leaves))
    for want, got in zip(function(*leaves), received, strict=True):
        torch.testing.assert_close(torch.from_numpy(jax.device_get(got).copy()), want, rtol=1e-5, atol=1e-5)


def test_batch_norm_of_shards_after_a_convolution() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 3, 6, 6)

    def function(x: torch.Tensor) -> Any:
        leaf = x.detach().requires_grad_()
        out = norm(conv(leaf, 4))
        return out.detach(), torch.autograd.grad((out * out.detach().cos()).sum(), leaf)[0]

    received = program(function, x, shards=2).compile()(to_jax(x))
    halves = [function(half) for half in x.chunk(2)]
    for i, got in enumerate(received):
        want = torch.cat([half[i] for half in halves])
        torch.testing.assert_close(torch.from_numpy(jax.device_get(got).copy()), want, rtol=1e-5, atol=1e-5)


def test_registered_lowering_gets_what_pytorch_announced() -> None:
    seen: list[Any] = []
    ours = find_lowering(aten.relu.default)
    assert ours is not None

    def relu(x: jax.Array) -> jax.Array:
        seen.append(x.shape)
        return jnp.maximum(x, 0)

    register_lowering(aten.relu.default, relu)
    try:
        check_op(lambda x: conv(F.relu(conv(x, 4)), 2), torch.randn(2, 3, 7, 8), atol=1e-5)
    finally:
        register_lowering(aten.relu.default, ours)
    assert seen == [(2, 4, 7, 8)]


def test_wrapper_has_the_announced_shape() -> None:
    x = jnp.arange(24.0).reshape(1, 2, 3, 4)
    value = channels_last(x)
    assert isinstance(value, ChannelsLast)
    assert value.shape == x.shape
    assert value.array.shape == (1, 3, 4, 2)
    assert value.ordinary is value.ordinary
    assert (ordinary([value])[0] == x).all()
