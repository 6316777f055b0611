"""Products over the features of images with the images' own dimensions, in graphs for TPU.

`nn.Linear` over [batch, height, width, features] (ConvNeXt's layers, MLPs with features last) multiplies a matrix of
batch * height * width rows. For the convolutions around, XLA lays an image's batch beside its features; the rows of a matrix
have it outermost, so every such product copied its operand or its result, and so did its gradients. A product with the
dimensions apart takes them in any order.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import torch
from torch import fx

from ..lowering import lowers
from ._rewrites import VIEWS, arguments_of, copy_of, drop_unused, replace_call

aten = torch.ops.aten

_LIBRARY = torch.library.Library("systolic", "FRAGMENT")
_LIBRARY.define("images_outer(Tensor left, Tensor right) -> Tensor")
_OUTER = torch.ops.systolic.images_outer.default

_IMAGE = 4
"""Dimensions of images with features last. With fewer, rows lie as the array does."""


def with_images_in_place(graph: fx.Graph) -> fx.Graph:
    """A copy of `graph` in which matrices of all places of images are images again; the graph itself where it has none."""
    if not any(_image(node) for node in graph.nodes):
        return graph
    copy = copy_of(graph)
    for node in list(copy.nodes):
        if node.target is aten.mm.default:
            _multiply(copy, node, 0)
        elif node.target is aten.addmm.default and not node.kwargs:
            _multiply(copy, node, 1)
        elif node.target is aten.sum.dim_IntList and arguments_of(node)[1:] == ([0], True) and not node.kwargs:
            _sum(copy, node)
    drop_unused(copy)
    return copy


def _image(node: object) -> fx.Node | None:
    """The image whose places are a matrix's rows; None for another node."""
    if not isinstance(node, fx.Node) or node.target not in VIEWS or node.meta["val"].dim() != 2:
        return None
    source = arguments_of(node)[0]
    assert isinstance(source, fx.Node), "a view has a source"
    shape = source.meta["val"].shape
    return source if len(shape) == _IMAGE and shape[-1] == node.meta["val"].shape[1] else None


def _multiply(graph: fx.Graph, product: fx.Node, at: int) -> None:
    left, right = arguments_of(product)[at : at + 2]
    image = _image(left)
    if image is not None:
        bias = arguments_of(product)[:at]
        if all(isinstance(one, fx.Node) and one.meta["val"].dim() == 1 for one in bias):
            _in_place(graph, product, (*bias, image, right), _places(image))
    elif at == 0 and isinstance(left, fx.Node) and left.target is aten.t.default:
        pair = _image(arguments_of(left)[0]), _image(right)
        if pair[0] is not None and pair[1] is not None and _places(pair[0]) == _places(pair[1]):
            replace_call(graph, product, _OUTER, pair)


def _places(image: fx.Node) -> list[int]:
    return list(image.meta["val"].shape[:-1])


def _sum(graph: fx.Graph, node: fx.Node) -> None:
    image = _image(arguments_of(node)[0])
    if image is not None:
        _in_place(graph, node, (image, list(range(_IMAGE - 1)), True), [1] * (_IMAGE - 1))


def _in_place(graph: fx.Graph, node: fx.Node, arguments: tuple[object, ...], places: list[int]) -> None:
    """The same op with an image for a matrix, and its result, which has these places, as a matrix again."""
    assert callable(node.target), "an op can be called"
    with graph.inserting_before(node):
        apart = graph.call_function(node.target, arguments)  # pyright: ignore[reportArgumentType]
    shape = node.meta["val"].shape
    apart.meta = {**node.meta, "val": node.meta["val"].new_empty([*places, shape[-1]])}
    replace_call(graph, node, aten.view.default, (apart, list(shape)))


@lowers(_OUTER)
def _images_outer(left: jax.Array, right: jax.Array) -> jax.Array:
    """The sum over all places, as a matrix [features of left, features of right]."""
    places = tuple(range(_IMAGE - 1))
    wide = jnp.promote_types(left.dtype, jnp.float32)
    return jax.lax.dot_general(left, right, ((places, places), ((), ())), preferred_element_type=wide).astype(left.dtype)
