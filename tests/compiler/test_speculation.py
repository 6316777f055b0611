"""Values that decide the way of a step: the right way is taken for every batch, and the state changes once for each."""

from __future__ import annotations

import gc
import re
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import jax
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import systolic
from systolic.compiler.capture._speculation import Oracle
from systolic.exceptions import OutOfRangeError

T = torch.Tensor


def uniform(*shape: int, seed: int) -> T:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed)) * 2 - 1


class Counted(nn.Module):
    """A layer that counts, on the devices and in Python, how often it was trained."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 3)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.calls = 0
        self.seen: list[float] = []


def training(body: Callable[[Counted, T], T]) -> tuple[Counted, Callable[[T], Any], torch.optim.Optimizer]:
    module = Counted()
    optimizer = torch.optim.SGD(module.parameters(), 0.1, momentum=0.9)

    def step(x: T) -> T:
        optimizer.zero_grad()
        module.steps += 1
        module.calls += 1
        loss = body(module, x)
        loss.backward()
        optimizer.step()
        module.seen.append(loss.item())
        return loss.detach()

    return module, step, optimizer


def require_equal(body: Callable[[Counted, T], T], batches: list[T], devices: int = 1) -> systolic.JitFunction:
    """Every loss, and all state at the end, are those of eager PyTorch."""
    eager, eager_step, _ = training(body)
    module, step, optimizer = training(body)
    compiled = systolic.jit(step, devices=jax.devices()[:devices])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one of the tests below looks at them
        losses = [float(compiled(x)) for x in batches]
    assert losses == pytest.approx([float(eager_step(x)) for x in batches], rel=1e-4, nan_ok=True)
    for name, value in eager.state_dict().items():
        torch.testing.assert_close(module.state_dict()[name], value, rtol=1e-4, atol=1e-6, equal_nan=True, msg=name)
    assert (module.calls, int(module.steps)) == (eager.calls, int(eager.steps)) == (len(batches), len(batches))
    assert module.seen == pytest.approx(eager.seen, rel=1e-4, nan_ok=True)
    assert optimizer.state[module.layer.weight]["momentum_buffer"].shape == (3, 4)
    return compiled


def branches(module: Counted, x: T) -> T:
    loss = module.layer(x).square().mean()
    if x.sum() > 0:
        loss = loss * 3
    elif x[0, 0] > 0:
        loss = loss + module.layer.weight.abs().sum()
    return loss


@pytest.mark.parametrize("devices", [1, 8])
def test_every_batch_goes_its_own_way(devices: int) -> None:
    compiled = require_equal(branches, [uniform(8, 4, seed=s) for s in range(24)], devices)
    assert compiled.compile_count <= 2 * 3  # three ways, each with the first state of the optimizer and without


def loops(module: Counted, x: T) -> T:
    h = module.layer(x)
    while h.abs().max() > 0.5:
        h = h * 0.7
    return h.square().sum()


def counts(module: Counted, x: T) -> T:
    rows = int((x[:, 0] > 0).sum())
    return module.layer(x)[: rows + 1].square().mean()


def floors(module: Counted, x: T) -> T:
    return module.layer(x).square().mean() * (1 + int(x.sum()))


@pytest.mark.thin(3)
@pytest.mark.parametrize("body", [loops, counts, floors])
def test_loops_and_numbers(body: Any) -> None:
    require_equal(body, [uniform(8, 4, seed=s) for s in range(8)])


def masked(module: Counted, x: T) -> T:
    chosen = x[:, 0] > 0
    return module.layer(x[chosen]).square().sum() + module.layer(x)[~chosen].sum()


def written(module: Counted, x: T) -> T:
    out = torch.zeros(len(x), 3)
    chosen = x[:, 1] > 0
    out[chosen] = module.layer(x[chosen])
    return out.square().sum() + 0 * module.layer(x).sum()


def compared(module: Counted, x: T) -> T:
    h = module.layer(x)
    return h.square().sum() + torch.masked_select(h, h > 0).sum() + h[(h > 0.1).nonzero(as_tuple=True)].sum()


def grouped(module: Counted, x: T) -> T:
    kinds = (x[:, 0] * 2).round().long() + 2
    values, inverse, sizes = kinds.unique(return_inverse=True, return_counts=True)
    means = torch.zeros(len(values), 3).index_add(0, inverse, module.layer(x)) / sizes[:, None]
    return means.square().sum() + torch.bincount(kinds).float().max() * module.layer.bias.sum()


def in_runs(module: Counted, x: T) -> T:
    values, inverse, sizes = torch.unique_consecutive((x[:, 0] > 0).long(), return_inverse=True, return_counts=True)
    assert len(torch.unique_consecutive((x[:, 1] > 5).long())) == 1, "as transformers asks for ends of texts"
    means = torch.zeros(len(values), 3).index_add(0, inverse, module.layer(x)) / sizes[:, None]
    return means.square().sum()


def repeated(module: Counted, x: T) -> T:
    return module.layer(x).repeat_interleave((x[:, 2] > 0).long() + 1, 0).square().sum()


FULL, EMPTY = torch.ones(8, 4), -torch.ones(8, 4)


@pytest.mark.thin(8, 3)
@pytest.mark.parametrize("devices", [1, 8])
@pytest.mark.parametrize("body", [masked, written, compared, grouped, in_runs, repeated])
def test_sizes_that_depend_on_values(body: Any, devices: int) -> None:
    require_equal(body, [FULL, EMPTY, *(uniform(8, 4, seed=s) for s in range(4)), EMPTY, FULL], devices)


def test_a_mask_of_no_input_asks_nothing() -> None:
    def step(x: T) -> T:
        return (x @ x.T)[~torch.eye(8, dtype=torch.bool)].view(8, 7).sum(1)

    compiled = systolic.jit(step)
    for seed in range(3):
        x = uniform(8, 4, seed=seed)
        torch.testing.assert_close(compiled(x), step(x))
    assert compiled.compile_count == 1


def test_users_error_on_the_way_that_raises_leaves_the_state_of_the_step_before() -> None:
    def checked(module: Counted, x: T) -> T:
        if (x > 5).any():
            raise KeyError(f"{x.max().item():.2f} is too large for {x.amax(0)[0]}")
        return module.layer(x).square().mean()

    module, step, _ = training(checked)
    compiled = systolic.jit(step)
    compiled(FULL)
    compiled(FULL)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    with pytest.raises(KeyError, match="6.00 is too large for 6.0"):
        compiled(FULL * 6)
    assert module.calls == int(module.steps) == 2
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    compiled(FULL)
    assert int(module.steps) == 3


def test_a_condition_on_random_numbers_holds_for_the_numbers_of_its_step() -> None:
    """The host cannot know what the devices draw; the batch runs again with the same draws under the other program."""
    module = Counted()

    def step(x: T) -> tuple[T, T]:
        module.steps += 1
        draw = torch.rand(())
        return draw, x.sum() * (10 if draw < 0.5 else 1)

    compiled = systolic.jit(step)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [tuple(map(float, compiled(FULL))) for _ in range(40)]
    assert all(value == (320 if draw < 0.5 else 32) for draw, value in found)
    assert len({draw for draw, _ in found}) == 40
    assert 5 < sum(value == 320 for _, value in found) < 35
    assert int(module.steps) == 40


def test_parts_as_long_as_the_draws_of_the_step_say() -> None:
    """The host cannot know these either; the devices tell the integers that they found, all of a line at once."""
    module = Counted()

    def step(x: T) -> tuple[T, T]:
        module.steps += 1
        sizes = torch.randint(0, 3, (8,)).bincount(minlength=3)
        parts = x.split(sizes.tolist())
        again = torch.rand(4).gt(0.5).sum()
        return sizes.clone(), torch.stack([part.sum() for part in parts] + [x[: int(again)].sum() - again])

    compiled = systolic.jit(step)
    found = [compiled(torch.ones(8)) for _ in range(4)]
    for sizes, sums in found:
        assert sums.tolist() == [*sizes.tolist(), 0]
    assert len({tuple(sizes.tolist()) for sizes, _ in found}) > 1
    assert int(module.steps) == 4


def test_an_index_out_of_range_on_a_way_not_taken_is_no_error() -> None:
    module = Counted()

    def step(table: T, index: T) -> T:
        module.steps += 1
        return F.embedding(index, table).sum() if bool(index.max() < 4) else table.sum()

    compiled = systolic.jit(step)
    table = torch.ones(4, 2)
    assert float(compiled(table, torch.tensor([1, 2]))) == 4
    assert float(compiled(table, torch.tensor([1, 9]))) == 8
    assert float(compiled(table, torch.tensor([3]))) == 2
    assert int(module.steps) == 3

    unchecked = systolic.jit(lambda table, index: F.embedding(index, table).sum() if bool(index.sum() > 0) else table.sum())
    unchecked(table, torch.tensor([1]))
    with pytest.raises(OutOfRangeError):
        unchecked(table, torch.tensor([9]))


def test_a_branch_that_flips_often_is_said_once_with_its_line() -> None:
    module, step, _ = training(branches)
    compiled = systolic.jit(step)
    batches = [FULL if i % 2 else EMPTY for i in range(80)]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for x in batches:
            compiled(x)
    (text,) = [str(w.message) for w in said if "in vain" in str(w.message)]
    assert re.search(r"of \d+ runs of this step were in vain(?s:.)*test_speculation.py:\d+ in branches", text)


def test_programs_keep_no_batch_alive() -> None:
    """PyTorch's bookkeeping stays with the graph, and would keep the values that questions were answered from."""
    module, step, _ = training(branches)
    compiled = systolic.jit(step)
    seen: list[weakref.ref[Any]] = []
    original = Oracle.decide

    def noting(self: Oracle, *args: Any) -> Any:
        seen.append(weakref.ref(self))
        return original(self, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Oracle, "decide", noting)
        compiled(FULL)
    gc.collect()
    assert seen
    assert not any(oracle() for oracle in seen)
    assert module.calls == 1


def test_text_of_a_value_names_a_part_of_the_model() -> None:
    experts = nn.ModuleDict({f"expert_{index}": nn.Linear(3, 3) for index in range(3)})

    def step(x: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        return experts[f"expert_{chosen[0]}"](x).sum()

    compiled = systolic.jit(step)
    x = torch.randn(2, 3)
    for index in (2, 0, 2):
        chosen = torch.tensor([index])
        torch.testing.assert_close(compiled(x, chosen).cpu(), step(x, chosen))
    assert len(compiled.compiles) == 2


def test_sizes_made_of_values_for_an_interpolation() -> None:
    def step(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        height, width = mask[:, 0].sum(), mask[0].sum()
        return torch.nn.functional.interpolate(x, size=(height, width), mode="bilinear", align_corners=True)

    compiled = systolic.jit(step)
    x = torch.randn(1, 2, 4, 4)
    for size in (3, 2):
        mask = torch.zeros(4, 4, dtype=torch.long)
        mask[:size, :size] = 1
        torch.testing.assert_close(compiled(x, mask).cpu(), step(x, mask))


def test_parts_as_long_as_the_values_say() -> None:
    weights = torch.randn(3, 4, 2)

    def step(x: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
        leaf = x.detach().requires_grad_()
        parts = leaf.split(groups.bincount(minlength=3).tolist())
        out = torch.cat([part @ weight for part, weight in zip(parts, weights, strict=True)])
        start = groups[0]
        loss = out.square().sum() + leaf[start : start + 2].sum() + F.pad(leaf, (0, 0, 0, groups[1])).cos().sum()
        return torch.autograd.grad(loss, leaf)[0]

    compiled = systolic.jit(step)
    x = uniform(6, 4, seed=1)
    for groups in ([0, 1, 1, 2, 2, 2], [1, 0, 0, 1, 1, 1], [0, 1, 1, 2, 2, 2]):
        given = torch.tensor(groups)
        torch.testing.assert_close(compiled(x, given).cpu(), step(x, given))
    assert len(compiled.compiles) == 2


def test_a_question_behind_attention_whose_result_lies_otherwise_on_the_host() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        heads = x.view(2, 4, 2, 3).transpose(1, 2)
        flat = F.scaled_dot_product_attention(heads, heads, heads).transpose(1, 2).reshape(2, 4, 6)
        return flat if flat.sum() > 0 else -flat

    compiled = systolic.jit(step)
    for seed in (1, 2):
        x = uniform(2, 4, 6, seed=seed)
        torch.testing.assert_close(compiled(x).cpu(), step(x))
