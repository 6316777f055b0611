"""Calls of ops that go our ways through PyTorch's tracer stand in the graph as those that it records itself."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn
from torch.utils.checkpoint import checkpoint

import systolic
from systolic.compiler.capture import _functional_calls, _known_calls, _torch_patches
from systolic.compiler.driver import JitFunction

Step = Callable[[torch.Tensor], torch.Tensor]


def transformer() -> Step:
    torch.manual_seed(0)
    layers = nn.ModuleList(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True) for _ in range(2))
    optimizer = torch.optim.AdamW(layers.parameters(), lr=0.01)

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            for layer in layers:
                x = layer(x)
        loss = x.float().square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(layers.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    return step


def images() -> Step:
    torch.manual_seed(0)
    net = nn.Sequential(
        *[m for _ in range(2) for m in (nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU())], nn.MaxPool2d(2)
    ).to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = sum(net(image).mean() for image in (x[:, :3, None].expand(-1, -1, 8, -1), x[:, 3:, None].expand(-1, -1, 8, -1)))
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def views() -> Step:
    kept = torch.zeros(4, 6, 8)

    def step(x: torch.Tensor) -> torch.Tensor:
        found = []
        for rows in (x, x + 1, x.mT, x.mT.contiguous(), x.flip(0)):
            first, second = rows.chunk(2, dim=-1)
            part = rows[1:, ::2].transpose(0, 1).unsqueeze(1)
            diagonal = rows.diagonal(dim1=1, dim2=2)
            values, places = rows.topk(2, dim=1)
            strided = rows.contiguous().as_strided((2, 3), (3, 1), 1)
            found += [first.sum() * second.amax(), part.squeeze(1).mean(), diagonal.sum(), values.sum(), strided.norm()]
            found += [rows.gather(1, places).sum(), torch.cat([first, second], -1).std(), torch.stack(rows.unbind(0)).mean()]
            written = rows.contiguous().clone()
            written[:, 0] = 2.0
            written.view(-1)[3:5].mul_(3)
            written[written > 1] = 0.5
            found.append(written.sum())
        kept[1].add_(x[0])
        kept.transpose(0, 1)[2, :, 1:3] = x[0, 0, :1]
        return torch.stack(found) + kept.sum()

    return step


def complex_numbers() -> Step:
    def step(x: torch.Tensor) -> torch.Tensor:
        found = torch.zeros(())
        for rows in (x, x * 2, x.mT):
            spectrum = torch.fft.fft(rows, dim=0)
            found = (
                found
                + (spectrum * spectrum.conj()).real.sum()
                + spectrum.imag.abs().mean()
                + (spectrum.conj() + 1).angle().sum()
            )
        return found

    return step


def recomputed() -> Step:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.3), nn.Tanh())

    def step(x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = checkpoint(net, x, use_reentrant=False)
        x.square().mean().backward()
        found = torch.stack([p.grad.sum() for p in net.parameters() if p.grad is not None])
        net.zero_grad()
        return found

    return step


def second_derivatives() -> Step:
    def step(x: torch.Tensor) -> torch.Tensor:
        found = []
        for rows in (x, x * 0.5):
            rows = rows.detach().requires_grad_()
            (first,) = torch.autograd.grad((rows.sigmoid() * rows).sum(), rows, create_graph=True)
            (second,) = torch.autograd.grad(first.square().sum(), rows)
            found.append(second.sum())
        return torch.stack([*found, torch.func.vmap(torch.func.grad(lambda r: r.tanh().sum()))(x).sum()])

    return step


STEPS = [transformer, images, views, complex_numbers, recomputed, second_derivatives]


def ops(compiled: JitFunction[..., Any]) -> list[Any]:
    """The nodes of the program that ran last, with numbers for names, and for the memory that values look at."""
    nodes = list(compiled.graph().nodes)
    number = {node: place for place, node in enumerate(nodes)}
    memories: dict[int, int] = {}
    return [
        (
            n.op, str(n.target), fx.map_arg((n.args, n.kwargs), lambda m: number[m]), about(n.meta.get("val"), memories),
            n.meta.get("tensor_meta"), *(n.meta.get(key) for key in ("scope", "line", "backward", "recomputed", "draw")),
        )
        for n in nodes
    ]  # fmt: skip


def about(value: object, memories: dict[int, int]) -> Any:
    if isinstance(value, list | tuple):
        return type(value), [about(one, memories) for one in value]
    if not isinstance(value, torch.Tensor):
        return type(value)
    memory = memories.setdefault(value.untyped_storage()._cdata, len(memories))
    bits = value.is_conj(), value.is_neg(), value.requires_grad, value.untyped_storage().nbytes()
    return type(value), value.shape, value.stride(), value.storage_offset(), value.dtype, value.device, memory, *bits


def run(make: Callable[[], Step]) -> tuple[Any, torch.Tensor]:
    systolic.seed_everything(1)
    compiled = systolic.jit(make())
    result = compiled(torch.randn(4, 6, 8, generator=torch.Generator().manual_seed(2)))
    return compiled, result.detach().cpu().clone()


@pytest.mark.parametrize("make", STEPS)
def test_the_graph_is_the_same(make: Callable[[], Step], monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(_torch_patches, "recording_known_calls", contextlib.nullcontext)
        patch.setattr(_torch_patches, "calling_straight", contextlib.nullcontext)
        # of memory with holes PyTorch says another thing at first than later, out of its own cache
        by_pytorch, result = [run(make) for _ in range(3)][-1]
    run(make)  # learns what this trace has not in common with earlier ones
    # a spy whose frames are not those of user code, whose lines stand in the graph
    with (
        mock.patch.object(_known_calls._Call, "record", autospec=True, side_effect=_known_calls._Call.record) as recorded,
        mock.patch.object(_functional_calls, "_wrapped", side_effect=_functional_calls._wrapped) as computed,
        mock.patch.object(_functional_calls, "functional_view", side_effect=_functional_calls.functional_view) as seen,
    ):
        known, result_known = run(make)
    assert recorded.call_count > 10
    assert computed.call_count > 10
    assert seen.call_count > 3
    for op, op_by_pytorch in zip(ops(known), ops(by_pytorch), strict=True):
        assert op == op_by_pytorch
    assert torch.equal(result, result_known)


def test_a_call_that_pytorch_refuses_is_refused_again() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        return x @ x.mT.double()

    compiled = systolic.jit(step)
    for _ in range(2):
        with pytest.raises(Exception, match="dtype"):
            compiled(torch.ones(3, 3))


def test_numbers_that_change_stay_symbols() -> None:
    def step(x: torch.Tensor, times: int) -> torch.Tensor:
        return F.relu(x * times) + (x + times)

    compiled = systolic.jit(step)
    for times in (2, 3, 5, 7):
        x = torch.randn(4, 6, 8)
        torch.testing.assert_close(compiled(x, times).cpu(), step(x, times))
    assert compiled.compile_count <= 2
