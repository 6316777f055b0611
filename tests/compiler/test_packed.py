"""Packed sequences in compiled steps equal eager PyTorch: through recurrent modules, padded again, by their fields."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from compiler.step_check import check_step
from torch import nn
from torch.nn.utils import rnn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence

import systolic
from systolic.exceptions import OutOfRangeError

pytestmark = pytest.mark.thin(16, 3)

NETWORKS = [nn.LSTM, nn.GRU, nn.RNN]
UNSORTED, SORTED = [2, 5, 1, 4], [5, 4, 2, 1]


def batch(batch_first: bool = False, times: int = 5) -> torch.Tensor:
    torch.manual_seed(1)
    x = torch.randn(times, 4, 3)
    return (x.transpose(0, 1).contiguous() if batch_first else x).requires_grad_()


def make(network: Any, **options: Any) -> nn.RNNBase:
    torch.manual_seed(0)
    return network(3, 6, **options)


def through(module: nn.RNNBase, is_sorted: bool, **options: Any) -> Callable[..., Any]:
    """Pack, the module, pad: results for every time, lengths and final states."""

    def step(x: torch.Tensor, lengths: torch.Tensor, *state: torch.Tensor) -> Any:
        packed = pack_padded_sequence(x, lengths, module.batch_first, enforce_sorted=is_sorted)
        given = (state,) if isinstance(module, nn.LSTM) and state else state
        output, final = module(packed, *given)
        return pad_packed_sequence(output, module.batch_first, **options), final

    return step


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize(
    ("layers", "bidirectional", "batch_first", "is_sorted"), list(itertools.product((1, 2), *[(False, True)] * 3))
)
def test_stacks(network: Any, layers: int, bidirectional: bool, batch_first: bool, is_sorted: bool) -> None:
    module = make(network, num_layers=layers, bidirectional=bidirectional, batch_first=batch_first)
    check_step(through(module, is_sorted), batch(batch_first), torch.tensor(SORTED if is_sorted else UNSORTED), module=module)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("is_sorted", [False, True])
def test_states_that_are_given(network: Any, is_sorted: bool) -> None:
    module = make(network, bidirectional=True)
    states = [torch.randn(2, 4, 6, requires_grad=True) for _ in range(2 if network is nn.LSTM else 1)]
    check_step(through(module, is_sorted), batch(), torch.tensor(SORTED if is_sorted else UNSORTED), *states, module=module)


def test_projection_without_biases_and_with_relu() -> None:
    for module in (make(nn.LSTM, proj_size=2, bias=False), make(nn.RNN, nonlinearity="relu")):
        check_step(through(module, False), batch(), torch.tensor(UNSORTED), module=module)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_dropout_between_layers(share: float) -> None:
    module = make(nn.GRU, num_layers=2, dropout=share)
    check_step(through(module, False), batch(), torch.tensor(UNSORTED), module=module)


def test_dropout_leaves_out_what_it_says() -> None:
    module = make(nn.GRU, num_layers=2, dropout=0.5)
    step = systolic.jit(lambda x, n: module(pack_padded_sequence(x, n, enforce_sorted=False))[1][1])
    assert not torch.equal(step(batch().detach(), torch.tensor(UNSORTED)), step(batch().detach(), torch.tensor(UNSORTED)))


@pytest.mark.parametrize(("total", "value"), [(None, 0.0), (5, -1.0), (4, 2.0), (7, 0.5)])
@pytest.mark.parametrize("batch_first", [False, True])
def test_padding_again(total: int | None, value: float, batch_first: bool) -> None:
    module = make(nn.LSTM, batch_first=batch_first)
    step = through(module, False, total_length=total, padding_value=value)
    check_step(step, batch(batch_first), torch.tensor([2, 4, 1, 3]), module=module)


def test_padding_may_be_anything() -> None:
    module, x = make(nn.LSTM, bidirectional=True), batch().detach()
    x[torch.arange(5)[:, None] >= torch.tensor(UNSORTED)] = float("nan")
    check_step(through(module, False), x.requires_grad_(), torch.tensor(UNSORTED), module=module)


def test_one_program_for_all_lengths() -> None:
    module = make(nn.LSTM)
    step = systolic.jit(through(module, False, total_length=5))
    for lengths in ([2, 5, 1, 4], [1, 1, 3, 2], [5, 5, 5, 5]):
        given = torch.tensor(lengths)
        (output, back), (h, c) = step(batch().detach(), given)
        (want, _), (want_h, want_c) = through(module, False, total_length=5)(batch().detach(), given)
        assert torch.equal(back, given)
        torch.testing.assert_close((output.cpu(), h.cpu(), c.cpu()), (want, want_h, want_c))
    assert step.compile_count == 1


@pytest.mark.parametrize("is_sorted", [False, True])
def test_its_fields(is_sorted: bool) -> None:
    lengths = torch.tensor(SORTED if is_sorted else UNSORTED)

    def fields(x: torch.Tensor) -> Any:
        packed = pack_padded_sequence(x, lengths, enforce_sorted=is_sorted)
        data, sizes, order, back = packed
        assert isinstance(packed, PackedSequence)
        return data, packed.data, packed[0], sizes, *([] if is_sorted else [order, back])

    check_step(fields, batch())


def test_an_op_on_what_is_packed_between_two_modules() -> None:
    below, above = make(nn.GRU, bidirectional=True), nn.LSTM(12, 4)
    modules = nn.ModuleList([below, above])
    targets = torch.arange(20).reshape(5, 4) % 3

    def step(x: torch.Tensor, lengths: torch.Tensor) -> Any:
        out, _ = below(pack_padded_sequence(x, lengths, enforce_sorted=False))
        wider = PackedSequence(torch.tanh(out.data), out.batch_sizes, out.sorted_indices, out.unsorted_indices)
        out, (h, _) = above(wider)
        wanted = pack_padded_sequence(targets, lengths, enforce_sorted=False)
        return nn.functional.cross_entropy(out.data, wanted.data), h, pad_packed_sequence(out)

    check_step(step, batch(), torch.tensor(UNSORTED), module=modules)


def test_packed_by_the_loader() -> None:
    module = make(nn.LSTM)
    packed = pack_sequence([torch.randn(n, 3) for n in (1, 4, 2)], enforce_sorted=False)
    step = lambda x: (pad_packed_sequence(module(x)[0]), module(x)[1][0])  # noqa: E731
    (output, lengths), h = systolic.jit(step)(packed)
    (want, want_lengths), want_h = step(packed)
    assert torch.equal(lengths, want_lengths)
    torch.testing.assert_close((output.cpu(), h.cpu()), (want, want_h))


def test_pack_and_unpack_a_list() -> None:
    module = make(nn.GRU)

    def step(x: torch.Tensor) -> Any:
        packed = pack_sequence([x[:2, 0], x[:5, 1], x[:3, 2]], enforce_sorted=False)
        return rnn.unpack_sequence(module(packed)[0])

    check_step(step, batch(), module=module)


def test_lengths_as_a_list() -> None:
    module = make(nn.GRU)

    def step(x: torch.Tensor, lengths: torch.Tensor) -> Any:
        return module(pack_padded_sequence(x, lengths.tolist(), enforce_sorted=False))[1]

    check_step(step, batch(), torch.tensor(UNSORTED), module=module)


def test_what_eager_pytorch_refuses_is_refused() -> None:
    module = make(nn.GRU)
    step = systolic.jit(lambda x, n: module(pack_padded_sequence(x, n))[1])
    x = batch().detach()
    with pytest.raises(RuntimeError, match="must be sorted in decreasing order"):
        step(x, torch.tensor(UNSORTED))
    with pytest.raises(RuntimeError, match=r"Expected `len\(lengths\)` to be equal to batch_size"):
        step(x, torch.tensor([5, 4]))
    for wrong in ([5, 4, 2, 0], [6, 4, 2, 1]):
        with pytest.raises(OutOfRangeError):
            step(x, torch.tensor(wrong))
    with pytest.raises(ValueError, match="total_length=3 and max sequence length being 5"):
        systolic.jit(through(module, False, total_length=3))(x, torch.tensor(UNSORTED))
