"""Batches that a step cuts to their longest sample, or counts to it (`x[:, : n.max()]`, `torch.arange(n.max())`)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import jax
import pytest
import torch
import torch.nn.functional as F
from compiler.sized_steps import require_equal_to_eager
from torch import nn

import systolic
from systolic.exceptions import OutOfRangeError

T = torch.Tensor
Body = Callable[[Any, T, T, T, T], T]
"""From a model, samples, ids, classes and lengths to a loss."""
SAMPLES, STEPS, FEATURES, WIDTH, CLASSES = 4, 10, 3, 8, 7
DTYPE = torch.float64


class Model(nn.Module):
    """Layers, of which a loss uses some."""

    def __init__(self) -> None:
        super().__init__()
        options: Any = {"dtype": DTYPE}
        layer: Any = {"dropout": 0.0, "batch_first": True, "dtype": DTYPE}
        self.first, self.last = nn.Linear(FEATURES, WIDTH, **options), nn.Linear(WIDTH, CLASSES, **options)
        self.table, self.positions = nn.Embedding(CLASSES, WIDTH, **options), nn.Embedding(STEPS, WIDTH, **options)
        self.norm, self.batch_norm = nn.LayerNorm(WIDTH, **options), nn.BatchNorm1d(WIDTH, **options)
        self.instance_norm = nn.InstanceNorm1d(WIDTH, **options)
        self.conv = nn.Conv1d(WIDTH, WIDTH, 3, padding=1, **options)
        self.shorter, self.wide = nn.Conv1d(WIDTH, WIDTH, 3, **options), nn.Conv2d(1, 2, 3, padding=1, **options)
        self.dilated = nn.Conv1d(WIDTH, WIDTH, 3, dilation=2, padding="same", groups=2, **options)
        self.gru = nn.GRU(WIDTH, WIDTH, batch_first=True, **options)
        self.lstm = nn.LSTM(WIDTH, WIDTH, 2, batch_first=True, bidirectional=True, **options)
        self.both, self.rnn = nn.Linear(2 * WIDTH, CLASSES, **options), nn.RNN(WIDTH, WIDTH, **options)
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True, **options)
        self.encoder = nn.TransformerEncoderLayer(WIDTH, 2, 16, **layer)
        before = nn.TransformerEncoderLayer(WIDTH, 2, 16, norm_first=True, **layer)
        self.encoders = nn.TransformerEncoder(before, 2, enable_nested_tensor=False)
        self.decoder = nn.TransformerDecoderLayer(WIDTH, 2, 16, **layer)

    def forward(self, x: T) -> T:
        return self.last(self.first(x).relu())


def live(n: T) -> T:
    return torch.arange(STEPS) < n[:, None]


def heads(h: T) -> T:
    return h.view(SAMPLES, -1, 2, 4).transpose(1, 2)


def joined(h: T) -> T:
    return h.transpose(1, 2).flatten(2)


def mean_of(h: T, mask: T) -> T:
    return (h * mask).sum() / mask.sum()


def by_int(m: Any, x: T, i: T, y: T, n: T) -> T:
    k = int(n.max())
    return m(x[:, :k]).square().mean()


def masked(m: Any, x: T, i: T, y: T, n: T) -> T:
    mask = live(n)
    k = mask.sum(1).max()
    return mean_of(m(x[:, :k]).sum(-1), mask[:, :k])


def masked_rows_of_all(m: Any, x: T, i: T, y: T, n: T) -> T:
    k = n.max()
    mask = live(n)[:, :k].reshape(-1)
    return F.cross_entropy(m(x[:, :k]).reshape(-1, CLASSES)[mask], y[:, :k].reshape(-1)[mask])


def next_ids(m: Any, x: T, i: T, y: T, n: T) -> T:
    i = i[:, : n.max() + 1]
    return F.cross_entropy(m.last(m.norm(m.table(i)))[:, :-1].reshape(-1, CLASSES), i[:, 1:].reshape(-1))


def ignored(m: Any, x: T, i: T, y: T, n: T) -> T:
    y, k = y.masked_fill(~live(n), -100), n.max()
    return F.cross_entropy(m.last(m.table(i[:, :k])).reshape(-1, CLASSES), y[:, :k].reshape(-1))


def log_probabilities(m: Any, x: T, i: T, y: T, n: T) -> T:
    k = n.max()
    found = m.last(m.table(i[:, :k])).log_softmax(-1).gather(-1, y[:, :k, None]).squeeze(-1)
    return -mean_of(found, live(n)[:, :k])


def batch_norm_of_rows(m: Any, x: T, i: T, y: T, n: T) -> T:
    h = m.first(x[:, : n.max()])
    return m.batch_norm(h.reshape(-1, WIDTH)).pow(3).mean() + m.last(h).mean()


def attention(m: Any, x: T, i: T, y: T, n: T) -> T:
    k = int(n.max())
    h = m.first(x[:, :k])
    return m.last(m.attention(h, h, h, key_padding_mask=~live(n)[:, :k], need_weights=False)[0]).square().mean()


def written_attention(m: Any, x: T, i: T, y: T, n: T) -> T:
    q = heads(m.first(x[:, : n.max()]))
    return m.last(joined((q @ q.transpose(-1, -2)).softmax(-1) @ q)).square().mean()


def attention_with_numbers(m: Any, x: T, i: T, y: T, n: T) -> T:
    q, mask = heads(m.table(i[:, : n.max()])), live(n)[:, : n.max()]
    bias = (1 - mask[:, None, None, :].to(DTYPE)) * -1e4
    return mean_of(m.last(joined(F.scaled_dot_product_attention(q, q, q, bias))).square().mean(-1), mask)


def causal_and_padded(m: Any, x: T, i: T, y: T, n: T) -> T:
    k = n.max()
    q, mask, causal = heads(m.table(i[:, :k])), live(n)[:, :k], torch.ones(k, k, dtype=torch.bool).tril()
    return mean_of(m.last(joined(F.scaled_dot_product_attention(q, q, q, mask[:, None, None] & causal))).mean(-1), mask)


def causal(m: Any, x: T, i: T, y: T, n: T) -> T:
    q = heads(m.table(i[:, : n.max()]))
    h = joined(F.scaled_dot_product_attention(q, q, q, is_causal=True))
    return F.cross_entropy(m.last(h).flatten(0, 1), y[:, : n.max()].flatten())


def encoder(m: Any, x: T, i: T, y: T, n: T) -> T:
    k = int(n.max())
    h = m.encoder(m.table(i[:, :k]), src_key_padding_mask=(~live(n))[:, :k])
    return F.cross_entropy(m.last(h).flatten(0, 1), y[:, :k].flatten())


def decoder(m: Any, x: T, i: T, y: T, n: T) -> T:
    memory = m.first(x[:, : n.max()])
    return m.last(m.decoder(m.table(i), memory, memory_key_padding_mask=(~live(n))[:, : n.max()])).square().mean()


def first_of_more(m: Any, x: T, i: T, y: T, n: T) -> T:
    h = torch.cat([m.table.weight[:1].expand(SAMPLES, 1, WIDTH), m.first(x[:, : n.max()])], 1)
    return m.last(m.encoders(h)[:, 0]).square().mean()


def both_directions(m: Any, x: T, i: T, y: T, n: T) -> T:
    h, (state, memory) = m.lstm(m.first(x[:, : n.max()]))
    return m.both(h).square().mean() + state.square().mean() + memory.mean()


def last_of_each(m: Any, x: T, i: T, y: T, n: T) -> T:
    h = m.gru(m.first(x[:, : n.max()]))[0]
    return m.last(h[torch.arange(SAMPLES), n - 1]).square().mean()


def last_of_each_gathered(m: Any, x: T, i: T, y: T, n: T) -> T:
    h = m.gru(m.first(x[:, : n.max()]))[0]
    return m.last(h.gather(1, (n - 1)[:, None, None].expand(-1, 1, WIDTH)).squeeze(1)).square().mean()


def packed(m: Any, x: T, i: T, y: T, n: T) -> T:
    given = nn.utils.rnn.pack_padded_sequence(m.first(x), n, batch_first=True, enforce_sorted=False)
    return m.last(nn.utils.rnn.pad_packed_sequence(m.gru(given)[0], batch_first=True)[0]).square().mean()


def two_lengths(m: Any, x: T, i: T, y: T, n: T) -> T:
    a, b = m.first(x[:, : n.max()]), m.table(i[:, : (n // 2 + 1).max()])
    scores = torch.einsum("bif,bjf->bij", a, b).softmax(-1)
    return (scores @ b).square().mean() + scores.mean()


def pooled(m: Any, x: T, i: T, y: T, n: T) -> T:
    h, mask = m.first(x[:, : n.max()]), live(n)[:, : n.max()]
    weights = h.sum(-1).masked_fill(~mask, -1e9).softmax(1)
    return F.cross_entropy(m.last((weights[..., None] * h).sum(1) + h.max(1).values), y[:, 0])


def counted_to_it(m: Any, x: T, i: T, y: T, n: T) -> T:
    k = n.max()
    return mean_of(m(x[:, :k]).sum(-1), torch.arange(k)[None] < n[:, None])


def counted_by_item(m: Any, x: T, i: T, y: T, n: T) -> T:
    k = n.max().item()
    return mean_of(m(x[:, :k]).sum(-1), torch.arange(k).expand(SAMPLES, k) < n[:, None])


def flags_of_it(m: Any, x: T, i: T, y: T, n: T) -> T:
    k = int(n.max())
    mask = torch.zeros(SAMPLES, k, dtype=torch.bool)
    for row, length in enumerate(n):
        mask[row, :length] = True
    return mean_of(m(x[:, :k]).sum(-1), mask)


def numbered(m: Any, x: T, i: T, y: T, n: T) -> T:
    k = int(n.max())
    places = torch.arange(k).unsqueeze(0).expand(SAMPLES, -1)
    return m.last(m.table(i[:, :k]) + m.positions(places)).square().mean()


def numbered_by_shape(m: Any, x: T, i: T, y: T, n: T) -> T:
    i = i[:, : n.max()]
    return m.last(m.table(i) + m.positions(torch.arange(i.shape[1]))).square().mean()


def repeated(m: Any, x: T, i: T, y: T, n: T) -> T:
    return m(x[:, 0]).repeat_interleave(n, 0).square().mean()


def segments(m: Any, x: T, i: T, y: T, n: T) -> T:
    of_sample = torch.arange(SAMPLES).repeat_interleave(n)
    rows = torch.cat([x[row, :length] for row, length in enumerate(n.tolist())])
    return torch.zeros(SAMPLES, CLASSES, dtype=DTYPE).index_add(0, of_sample, m(rows)).square().mean()


ONE_PROGRAM: dict[str, Body] = {
    "a linear layer": lambda m, x, i, y, n: m(x[:, : n.max()]).square().mean(),
    "by int": by_int,
    "time first": lambda m, x, i, y, n: m(x.transpose(0, 1)[: n.max()]).square().mean(),
    "cross-entropy": lambda m, x, i, y, n: F.cross_entropy(m(x[:, : n.max()]).reshape(-1, CLASSES), y[:, : n.max()].reshape(-1)),
    "cross-entropy, classes second": lambda m, x, i, y, n: F.cross_entropy(m(x[:, : n.max()]).transpose(1, 2), y[:, : n.max()]),
    "smoothed": lambda m, x, i, y, n: F.cross_entropy(m(x[:, : n.max()]).flatten(0, 1), y[:, : n.max()].flatten(), label_smoothing=0.1),
    "next ids": next_ids,
    "ignored": ignored,
    "masked": masked,
    "by a mask of steps": lambda m, x, i, y, n: m.last(m.first(x)[:, torch.arange(STEPS) < n.max()]).square().mean(),
    "masked rows": lambda m, x, i, y, n: m(x[:, : n.max()])[live(n)[:, : n.max()]].square().mean(),
    "masked rows of all": masked_rows_of_all,
    "log-probabilities": log_probabilities,
    "batch norm of rows": batch_norm_of_rows,
    "batch norm": lambda m, x, i, y, n: m.batch_norm(m.first(x[:, : n.max()]).transpose(1, 2)).pow(3).mean(),
    "instance norm": lambda m, x, i, y, n: m.instance_norm(m.first(x[:, : n.max().clamp(min=2)]).mT).pow(3).mean(),
    "a convolution": lambda m, x, i, y, n: m.conv(m.first(x[:, : n.max()]).transpose(1, 2)).square().mean(),
    "convolutions": lambda m, x, i, y, n: m.last(m.conv(m.conv(m.first(x[:, : n.max()]).mT).relu()).relu().mT).square().mean(),
    "a shorter convolution": lambda m, x, i, y, n: m.shorter(m.first(x[:, : n.max().clamp(min=4)]).mT).relu().square().mean(),
    "a dilated convolution": lambda m, x, i, y, n: m.dilated(m.first(x[:, : n.max()]).mT).relu().square().mean(),
    "a convolution of images": lambda m, x, i, y, n: m.wide(x[:, None, : n.max()]).relu().square().mean(),
    "attention": attention,
    "attention, written": written_attention,
    "attention with numbers": attention_with_numbers,
    "causal": causal,
    "causal and padded": causal_and_padded,
    "over keys": lambda m, x, i, y, n: m.last(joined(F.scaled_dot_product_attention(heads(m.table(i)), *[heads(m.first(x[:, : n.max()]))] * 2))).square().mean(),
    "of queries": lambda m, x, i, y, n: m.last(joined(F.scaled_dot_product_attention(heads(m.first(x[:, : n.max()])), *[heads(m.table(i))] * 2))).square().mean(),
    "an encoder": encoder,
    "encoders": lambda m, x, i, y, n: m.last(m.encoders(m.first(x[:, : n.max()]), src_key_padding_mask=(~live(n))[:, : n.max()])).square().mean(),
    "a decoder": decoder,
    "first of more": first_of_more,
    "a GRU": lambda m, x, i, y, n: m.gru(m.first(x[:, : n.max()]))[0].square().mean(),
    "both directions": both_directions,
    "an RNN, time first": lambda m, x, i, y, n: sum(part.square().mean() for part in m.rnn(m.first(x.transpose(0, 1)[: n.max()]))),
    "last of all": lambda m, x, i, y, n: m.both(m.lstm(m.first(x[:, : n.max()]))[0][:, -1]).square().mean(),
    "last of each": last_of_each,
    "last of each, gathered": last_of_each_gathered,
    "packed": packed,
    "two lengths": two_lengths,
    "pooled": pooled,
    "sums so far": lambda m, x, i, y, n: m.last(m.first(x[:, : n.max()]).cumsum(1)).square().mean(),
    "differences": lambda m, x, i, y, n: m(x[:, : n.max().clamp(min=2)]).diff(dim=1).square().mean(),
    "counted to it": counted_to_it,
    "counted by item": counted_by_item,
    "flags of it": flags_of_it,
    "numbered": numbered,
    "numbered by shape": numbered_by_shape,
    "positions": lambda m, x, i, y, n: m.last(m.table(i[:, : n.max()]) + m.positions.weight[: i[:, : n.max()].shape[1]]).square().mean(),
    "repeated": repeated,
    "segments": segments,
}  # fmt: skip
"""By name: losses that have one program for all lengths."""

DRAWING: dict[str, Body] = {
    "dropout": lambda m, x, i, y, n: m.last(F.dropout(m.first(x[:, : n.max()]), 0.3)).square().mean(),
    "noise": lambda m, x, i, y, n: (lambda h: m.last(h + torch.randn_like(h)))(m.first(x[:, : n.max()])).square().mean(),
    "dropout of attention": lambda m, x, i, y, n: (
        lambda q: m.last(joined(F.scaled_dot_product_attention(q, q, q, dropout_p=0.2))))(heads(m.first(x[:, : n.max()]))).square().mean(),
}  # fmt: skip
"""By name: losses that draw."""


def batches(count: int, shortest: int = 1) -> list[tuple[T, T, T, T]]:
    generator = torch.Generator().manual_seed(0)
    found = []
    for _ in range(count):
        x = torch.randn(SAMPLES, STEPS, FEATURES, generator=generator, dtype=DTYPE)
        ids, classes = (torch.randint(0, CLASSES, (SAMPLES, STEPS), generator=generator) for _ in range(2))
        longest = int(torch.randint(max(2, shortest), STEPS + 1, (), generator=generator))
        lengths = torch.randint(shortest, longest + 1, (SAMPLES,), generator=generator)
        found.append((x, ids, classes, lengths))
    return found


def require_equal(body: Body, devices: int = 1, shortest: int = 1, count: int = 9) -> systolic.JitFunction:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's own, of masks of two kinds
        return require_equal_to_eager(body, Model(), batches(count, shortest), devices)


@pytest.mark.thin(8)
@pytest.mark.parametrize("name", ONE_PROGRAM)
def test_all_lengths_have_one_program(name: str) -> None:
    compiled = require_equal(ONE_PROGRAM[name])
    assert len(compiled.compiles) <= 4, [one.reason for one in compiled.compiles]


@pytest.mark.thin(2)
@pytest.mark.parametrize("name", ["a linear layer", "cross-entropy", "masked"])
def test_the_host_does_not_wait_for_steps_of_the_program_for_all_lengths(name: str) -> None:
    waits = [entry.program.waits for entry in require_equal(ONE_PROGRAM[name])._engine._entries]
    assert waits == [False] + [True] * (len(waits) - 1), "programs for one size are right for some batches only"


@pytest.mark.thin(2)
@pytest.mark.parametrize("name", DRAWING)
def test_what_is_drawn_has_one_program_too(name: str) -> None:
    model, given = Model(), batches(8)
    step = systolic.jit(lambda *batch: DRAWING[name](model, *batch), devices=jax.devices()[:1])
    again = [float(step(*given[0])) for _ in range(3)]
    assert len(set(again)) == 3
    assert all(torch.isfinite(step(*batch)) for batch in given)
    assert len(step.compiles) <= 3, [one.reason for one in step.compiles]


def test_dropout_drops_its_share_of_what_counts() -> None:
    ones = torch.ones(64, 100)
    step = systolic.jit(lambda n: (F.dropout(ones[:, : n.max()], 0.25) == 0).float().mean())
    for longest in (50, 80, 30, 99):
        assert float(step(torch.full((4,), longest))) == pytest.approx(0.25, abs=0.03)
    assert len(step.compiles) == 2


@pytest.mark.tables(every=3)
@pytest.mark.parametrize(
    "name", ["cross-entropy", "masked rows of all", "an encoder", "both directions", "segments", "convolutions"]
)
def test_on_four_cores(name: str) -> None:
    assert len(require_equal(ONE_PROGRAM[name], 4).compiles) <= 4


@pytest.mark.tables(every=4)
@pytest.mark.parametrize(
    "name", ["a linear layer", "cross-entropy", "counted to it", "repeated", "segments", "attention, written"]
)
def test_of_nothing(name: str) -> None:
    require_equal(ONE_PROGRAM[name], shortest=0)


def test_places_behind_what_counts_are_an_error() -> None:
    step = systolic.jit(lambda h, n, at: h[:, : n.max()].mul(2)[torch.arange(len(n)), at].sum())
    h = torch.arange(40.0).reshape(4, 10)
    for longest in (6, 8, 5):
        n = torch.tensor([2, longest, 1, 3])
        assert float(step(h, n, n - 1)) == float(2 * h[torch.arange(4), n - 1].sum())
    assert len(step.compiles) == 2
    n = torch.tensor([2, 7, 1, 3])
    assert float(step(h, n, -n)) == float(2 * h[:, :7][torch.arange(4), -n].sum())
    with pytest.raises(OutOfRangeError, match=r"-10 to 9, or fewer: values decide how many.*Received: 7"):
        step(h, n, n.clone())


def test_a_branch_on_the_length_has_its_programs() -> None:
    def body(m: Any, x: T, i: T, y: T, n: T) -> T:
        k = int(n.max())
        h = m(x[:, :k])
        return h.square().mean() if k > 6 else h.abs().mean()

    assert len(require_equal(body).compiles) <= 5


def test_python_that_counts_to_the_length_has_a_program_for_each() -> None:
    def body(m: Any, x: T, i: T, y: T, n: T) -> T:
        k = int(n.max())
        weights = torch.zeros(k, dtype=DTYPE)
        return (m(x[:, :k]).mean(-1) * weights.add(sum(1 for place in range(k) if place % 3 == 0))).mean()

    require_equal(body)
