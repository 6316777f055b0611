"""Attention and recurrent layers over bounded arrays; see `_bounded_sizes.py`.

Nothing looks at a key that does not count, and what does not count comes after the end of each row.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

from ..kernels import Arguments, arguments_of, plain_attention, recurrent, with_argument
from ._bounded_dims import Dims, Size
from ._bounded_table import args_of, dims_of, node_of, refuse_parts, refuse_unless, rule_for, together, value_of
from ._bounded_writer import Writer

aten = torch.ops.aten

_MASK, _LENGTHS = 3, 4
"""The places of the mask among the arguments of attention, and of the lengths among those of a recurrent layer."""


@rule_for(torch.ops.systolic.jax_call.default)
def _function(writer: Writer, node: fx.Node) -> None:
    writer.same(node, 1, 2)
    number = args_of(node)[1]
    for function, rule in ((plain_attention, _attention), (recurrent, _recurrent)):
        if (found := arguments_of(number, function)) is not None:
            rule(writer, node, found)
            return
    refuse_unless(False, "a function of JAX's")


def _attention(writer: Writer, node: fx.Node, found: Arguments) -> None:
    """Queries, keys and values that do not count are zeros, so that none of them can be NaN; keys are masked out besides."""
    inputs, number, call = args_of(node)
    query, key, value = (node_of(inputs[place]) for place in found.places[:_MASK])
    mask, draw = (None if place is None else node_of(inputs[place]) for place in found.places[_MASK:])
    scores, length = _scores(writer, query, key, value)
    given = [writer.kept(one, 0) for one in (query, key, value)]
    # with as many queries, no position sees one behind itself
    masked_out = length is not None and not (found.settings["causal"] and length is scores[-2])
    refuse_unless(not found.settings["causal"] or length is scores[-2] or length is None, "positions of two sizes")
    if mask is not None:
        given.append(_masked(writer, mask, value_of(query), value_of(key), scores))
    elif masked_out:
        assert length is not None, "keys of a size"
        given.append(_mask(writer, length, len(scores), value_of(query)))
        number = with_argument(number, _MASK)
    if draw is not None:
        given.append(writer.nodes[draw])
    dims: list[Dims] = [(*scores[:-1], None)]
    if found.wanted is not None:
        given.append(writer.kept(node_of(inputs[-1]), 0))
        dims = [dims_of(writer, inputs[place]) for place in found.wanted]
    writer.put(node, writer.call(node.target, given, number, call, dims=dims), dims)


def _scores(writer: Writer, query: fx.Node, key: fx.Node, value: fx.Node) -> tuple[Dims, Size | None]:
    """The dimensions of the scores, and the size of the keys."""
    queries, keys, values = (writer.dims[one] for one in (query, key, value))
    refuse_unless(queries[-1] is None and keys[-1] is None and values[-1] is None, "features of a size")
    refuse_unless(keys[-2] is values[-2], "keys and values of different sizes")
    for size in (queries[-2], keys[-2]):
        refuse_parts(size)
    lead = together((value_of(one).shape[:-2], writer.dims[one][:-2]) for one in (query, key, value))
    return (*lead, queries[-2], keys[-2]), keys[-2]


def _mask(writer: Writer, length: Size, rank: int, like: torch.Tensor) -> fx.Node:
    """A mask of the keys that count."""
    dims = (*(None,) * (rank - 1), length)
    flags = like.new_empty([1] * (rank - 1) + [length.numbers[0]], dtype=torch.bool)
    shape = [1] * (rank - 1) + [length.bound]
    ones = writer.call(aten.ones.default, shape, dims=dims, val=flags, dtype=torch.bool)
    return writer.put_out(ones, dims, flags, 0)


def _masked(writer: Writer, mask: fx.Node, query: torch.Tensor, key: torch.Tensor, scores: Dims) -> fx.Node:
    """The mask that was given, without keys that do not count."""
    own, value = writer.dims[mask], value_of(mask)
    whole: Any = [1] * (len(scores) - 2) + [query.shape[-2], key.shape[-2]]
    of_both = together([(value.shape, own), (whole, (*(None,) * (len(scores) - 2), *scores[-2:]))])
    refuse_unless(of_both[-2:] == scores[-2:] and own[-1] is scores[-1], "a mask of other keys")
    last = len(own) - 1
    if value.dtype is torch.bool:
        return writer.kept(mask, 0, [last])
    finite = writer.kept(mask, 0, list(range(last)))
    return writer.put_out(finite, own, value, -math.inf, [last])


def _recurrent(writer: Writer, node: fx.Node, found: Arguments) -> None:
    """Rows end where what counts does; those that do not count themselves are zeros."""
    inputs, number, call = args_of(node)
    x, states, weights, draw, lengths = found.places
    own = dims_of(writer, inputs[x])
    refuse_unless(len(own) == 3 and own[2] is None, "one row")
    time, rows = (own[1], own[0]) if found.settings["batch_first"] else own[:2]
    for size in (time, rows):
        refuse_parts(size)
    plain = [inputs[place] for place in (*weights, *([] if draw is None else [draw]))]
    refuse_unless(not any(any(dims_of(writer, one)) for one in plain), "weights of a size")
    refuse_unless(all(dims_of(writer, inputs[place]) == (None, rows, None) for place in states), "states of other rows")
    given = [writer.kept(node_of(one), 0) for one in inputs]
    if time is not None and lengths is None:
        given.insert(found.arity, _lengths(writer, time, rows, value_of(inputs[states[0]]).shape[1]))
        number = with_argument(number, _LENGTHS)
    of_states = (None, rows, None)
    results: list[Dims] = [own, *(of_states for _ in states)]
    if found.wanted is not None:
        refuse_unless([dims_of(writer, one) for one in inputs[found.arity :]] == results, "gradients of other sizes")
        results = [dims_of(writer, inputs[place]) for place in found.wanted]
    writer.put(node, writer.call(node.target, given, number, call, dims=results), results)


def _lengths(writer: Writer, time: Size, rows: Size | None, traced: int) -> fx.Node:
    """For each row, how many times count."""
    count = writer.elements(time)
    like = count.meta["val"].new_empty((traced,))
    return writer.call(aten.expand.default, count, [traced if rows is None else rows.bound], dims=(rows,), val=like)
