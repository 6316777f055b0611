"""What a failed check inside a program does: the error, the state, and when the host looks."""

from __future__ import annotations

import jax
import pytest
import torch
import torch.nn.functional as F

import systolic
from systolic.compiler import Engine, JitFunction
from systolic.runtime._convert import to_jax_array
from systolic.runtime._placement import Placement


def message(call: JitFunction[..., object], *arguments: torch.Tensor) -> str:
    with pytest.raises(systolic.OutOfRangeError) as caught:
        call(*arguments)
    return str(caught.value)


def test_the_error_names_op_line_value_and_bound() -> None:
    table = torch.nn.Embedding(5, 2)

    @systolic.jit
    def step(tokens: torch.Tensor) -> torch.Tensor:
        return table(tokens).sum()

    text = message(step, torch.tensor([[0, 4], [7, 1]]))
    assert text.startswith("embedding: index out of range. Expected: 0 to 4. Received: 7.\n")
    assert f"{__file__}:" in text
    assert "return table(tokens).sum()" in text
    assert text.endswith(" See docs/troubleshooting.md#index-out-of-range")


def test_a_huge_index_is_named_as_far_as_32_bits_go() -> None:
    step = systolic.jit(lambda i: torch.ones(3)[i])
    assert "Received: 2147483646 or more." in message(step, torch.tensor([2**40]))
    assert "Received: -2147483648 or less." in message(step, torch.tensor([-(2**40)]))
    assert "Expected: -3 to 2. Received: -4." in message(step, torch.tensor([-4]))


def test_a_probability_is_named_by_its_value() -> None:
    step = systolic.jit(lambda p: F.binary_cross_entropy(torch.full_like(p, 0.5), p))
    assert "binary_cross_entropy: target out of range. Expected: 0 to 1. Received: 5." in message(step, torch.tensor([5.0]))
    assert "Received: nan." in message(step, torch.tensor([float("nan"), 0.0]))


def training(cores: int) -> tuple[torch.nn.Module, JitFunction[[torch.Tensor], torch.Tensor]]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(5, 3), torch.nn.Linear(3, 5))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)

    def step(tokens: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(tokens), tokens)
        loss.backward()
        optimizer.step()
        return loss

    return model, systolic.jit(step, devices=jax.devices("cpu")[:cores])


@pytest.mark.thin(8)
@pytest.mark.parametrize("cores", [1, 8])
@pytest.mark.parametrize("size", [8, 6])
def test_the_state_is_what_it_was_and_training_can_go_on(cores: int, size: int) -> None:
    found = []
    for values in ([1, 2], [1, 5, 2]):
        model, step = training(cores)
        for value in values:
            tokens = torch.zeros(size, dtype=torch.long)
            tokens[-1] = value
            if value == 5:
                assert "Received: 5." in message(step, tokens)
            else:
                step(tokens)
        step.release()
        found.append([p.detach().clone() for p in model.parameters()])
    for expected, received in zip(*found, strict=True):
        assert torch.equal(received, expected)


def test_the_host_does_not_wait_and_no_later_step_changes_the_state() -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    scope = {"weight": weight}

    def step(index: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        for _ in range(20):
            x = x @ x / 300
        with torch.no_grad():
            scope["weight"].add_(scope["weight"][index].sum() + 0 * x.sum())
        return x

    placement = Placement(jax.devices("cpu")[:1])
    engine = Engine(step, lambda: scope, placement)

    def run(index: int) -> systolic.compiler.StepResult:
        return engine.run([to_jax_array(torch.tensor([index])), to_jax_array(torch.ones(300, 300))], None, tuple, {})

    run(0)
    engine.verify()
    result = run(9)
    assert not result.is_ready()
    engine.watch.look()
    run(1)
    with pytest.raises(systolic.OutOfRangeError, match="Received: 9"):
        engine.verify()
    engine.release()
    assert weight.tolist() == [2.0, 2.0, 2.0]


def test_of_several_steps_the_first_one_is_named() -> None:
    engine = Engine(lambda i, number: torch.ones(3)[i], lambda: {}, Placement(jax.devices("cpu")[:1]))
    for number, index in enumerate([0, 1, -9, 1, 9]):
        engine.run([to_jax_array(torch.tensor([index]))], None, tuple, {"number": number})
        engine.watch._asked = None
    with pytest.raises(systolic.OutOfRangeError, match="Received: -9") as caught:
        engine.verify()
    assert "in the step with number 2\n" in str(caught.value)
    engine.verify()


def test_cores_meet_once_for_all_checks() -> None:
    step = systolic.jit(lambda i, j: torch.ones(4)[i] + torch.ones(5)[j], devices=jax.devices("cpu"))
    values = torch.zeros(16, dtype=torch.long)
    step(values, values)
    program, arrays = step._called()
    with jax.enable_x64(True):
        text = program.function.lower(*program.arguments(arrays, step._engine.last_numbers)).compile().as_text()
    assert len(program.checks) == 2
    assert text.count(" all-reduce(") == 1
