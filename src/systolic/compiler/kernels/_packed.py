"""Packed sequences in a step: kept padded, with the lengths of the rows, because values say how large they are packed.

Recurrent modules and `pad_packed_sequence` take them as they are, with one program for all lengths. What PyTorch has in their
fields (`data`, `batch_sizes`) is made when somebody asks for it, with one program for each size.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.utils import rnn
from torch.nn.utils.rnn import PackedSequence

from ...utilities._torch_internals import _VF
from .._capture_thread import replaced, replaced_everywhere
from ._recurrent import of_lengths

_PLACES = {name: place for place, name in enumerate(PackedSequence._fields)}
Fields = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor | None]


class PaddedSequence(PackedSequence):
    """A packed sequence that is not packed yet.

    Attributes:
        padded: (time, rows, ...), in the rows' own order.
        lengths: how many times each row has.
        is_sorted: whether the rows come with falling lengths, so that packing keeps their order.
    """

    padded: torch.Tensor
    lengths: torch.Tensor
    is_sorted: bool

    def __new__(cls, *fields: Any, **named: Any) -> Any:
        """One with the fields that PyTorch gives, which its methods make of this class, is packed."""
        return PackedSequence(*fields, **named)

    @classmethod
    def of(cls, padded: torch.Tensor, lengths: torch.Tensor, is_sorted: bool) -> PaddedSequence:
        """Keep these."""
        self = tuple.__new__(cls, (None,) * 4)
        self.padded, self.lengths, self.is_sorted = padded, lengths, is_sorted
        return self

    @functools.cached_property
    def _fields_of(self) -> Fields:
        if self.is_sorted:
            order, padded, lengths = None, self.padded, self.lengths
        else:
            lengths, order = torch.sort(self.lengths, descending=True)
            padded = self.padded.index_select(1, order)
        live = _live(lengths, len(padded))
        longest = int(lengths.max())  # as many times as PyTorch has: one question, and a program for each answer
        return padded[live], live.sum(1)[:longest], order, rnn.invert_permutation(order)

    def __getattribute__(self, name: str) -> Any:
        place = _PLACES.get(name)
        return super().__getattribute__(name) if place is None else self._fields_of[place]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._fields_of)

    def __getitem__(self, index: Any) -> Any:
        return self._fields_of[index]


def _live(lengths: torch.Tensor, times: int) -> torch.Tensor:
    """Mask of (time, row): true before the end of a row."""
    return torch.arange(times)[:, None] < lengths


def _checked(lengths: torch.Tensor, times: int) -> torch.Tensor:
    """The lengths, looked up: the program checks that they are from 1 to `times`."""
    return torch.arange(1, times + 1).index_select(0, lengths - 1)


def pack_padded_sequence(
    input: torch.Tensor,
    lengths: torch.Tensor | Sequence[Any],
    batch_first: bool = False,
    enforce_sorted: bool = True,
) -> PackedSequence:
    """PyTorch's function of this name, in a step."""
    if not isinstance(lengths, torch.Tensor):
        lengths = torch.stack([torch.as_tensor(length, dtype=torch.int64) for length in lengths])
    padded = input.transpose(0, 1) if batch_first else input
    if lengths.ndim != 1 or len(lengths) != padded.shape[1]:
        raise RuntimeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {lengths.numel()} (batch_size={padded.shape[1]})"
        )
    lengths = lengths.to(torch.int64)
    if enforce_sorted and bool((lengths[1:] > lengths[:-1]).any()):
        raise RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can pass "
            "`enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to sidestep this requirement."
        )
    return PaddedSequence.of(padded, _checked(lengths, len(padded)), enforce_sorted)


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """PyTorch's function of this name, in a step."""
    given = _padded_of(sequence)
    padded, lengths = given.padded, given.lengths
    if total_length is None:
        padded = padded[: lengths.max()]
    elif total_length < len(padded):
        if total_length < lengths.max():
            raise ValueError(
                "Expected total_length to be at least the length of the longest sequence in input, but got "
                f"total_length={total_length} and max sequence length being {int(lengths.max())}"
            )
        padded = padded[:total_length]
    elif total_length > len(padded):
        padded = torch.cat([padded, padded.new_zeros(total_length - len(padded), *padded.shape[1:])])
    live = _live(lengths, len(padded)).reshape(*padded.shape[:2], *[1] * (padded.ndim - 2))
    # made anew where nothing lives, also of what is not finite
    padded = torch.where(live, padded, torch.full((), padding_value, dtype=padded.dtype))
    return padded.transpose(0, 1) if batch_first else padded, lengths


def _padded_of(sequence: PackedSequence) -> PaddedSequence:
    """A packed sequence in its padded form: one of a batch, or one that was made of its fields."""
    if isinstance(sequence, PaddedSequence):
        return sequence
    data, sizes, _, back = sequence
    times, rows = len(sizes), int(sizes[0])
    live = torch.arange(rows) < sizes[:, None]
    places = (sizes.cumsum(0) - sizes)[:, None] + torch.arange(rows)
    padded, lengths = data[torch.where(live, places, 0)], live.sum(0)
    if back is not None:
        padded, lengths = padded.index_select(1, back), lengths.index_select(0, back)
    assert len(padded) == times
    return PaddedSequence.of(padded, lengths, back is None)


def taking_packed(forward: Callable[..., Any]) -> Callable[..., Any]:
    """A recurrent module's `forward` that takes packed sequences in their padded form."""

    def run(self: nn.RNNBase, input: Any, hx: Any = None) -> Any:
        if not isinstance(input, PackedSequence):
            return forward(self, input, hx)
        given = _padded_of(input)
        if given.padded.ndim != 3:
            raise RuntimeError(f"input must have 2 dimensions, got {given.padded.ndim - 1}")
        with of_lengths(given.lengths):
            output, hidden = forward(self, given.padded.transpose(0, 1) if self.batch_first else given.padded, hx)
        output = output.transpose(0, 1) if self.batch_first else output
        return PaddedSequence.of(output, given.lengths, given.is_sorted), hidden

    return run


def _pack(input: torch.Tensor, lengths: torch.Tensor, batch_first: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """PyTorch's function below that, for who has kept the original one: its rows are sorted already."""
    return pack_padded_sequence(input, lengths, batch_first)[:2]


def _pad(
    data: torch.Tensor, sizes: torch.Tensor, batch_first: bool, padding_value: float, total_length: int
) -> tuple[torch.Tensor, torch.Tensor]:
    return pad_packed_sequence(PackedSequence(data, sizes), batch_first, padding_value, total_length)


@contextlib.contextmanager
def padding_packed() -> Iterator[None]:
    """Inside the block, packed sequences stay padded, by whatever name the functions are called."""
    with contextlib.ExitStack() as stack:
        for kind in (nn.RNN, nn.LSTM, nn.GRU):
            stack.enter_context(replaced(kind, "forward", taking_packed(kind.forward)))
        stack.enter_context(replaced(_VF, "_pack_padded_sequence", _pack))
        stack.enter_context(replaced(_VF, "_pad_packed_sequence", _pad))
        functions = (pack_padded_sequence, pad_packed_sequence)
        stack.enter_context(replaced_everywhere(*[(rnn, function.__name__, function) for function in functions]))
        yield
