"""The ops of a compiled program carry the names of the user's modules."""

from __future__ import annotations

import torch
from named_steps import op_names, training_step
from torch import nn
from torch.utils.checkpoint import checkpoint

import systolic


class Block(nn.Module):
    def __init__(self, recompute: bool = False) -> None:
        super().__init__()
        self.wide = nn.Linear(16, 32)
        self.back = nn.Linear(32, 16)
        self.recompute = recompute

    def inner(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.back(torch.tanh(self.wide(x)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.inner, x, use_reentrant=False) if self.recompute else self.inner(x)


def trained(model: nn.Module) -> set[str]:
    step = training_step(model, torch.optim.AdamW(model.parameters()))
    step(torch.randn(8, 16))
    return op_names(step)


def test_forward_backward_and_optimizer_have_names() -> None:
    names = trained(nn.Sequential(Block(), nn.LayerNorm(16), Block()))
    assert {"model.0.wide", "model.0.back", "model.1", "model.2.wide", "model.2.back", "optimizer"} <= names
    assert {"backward/model.0.wide", "backward/model.0.back", "backward/model.2.wide"} <= names
    assert not any("unnamed" in name for name in names)


def test_backward_of_a_block_itself_is_told_from_its_children() -> None:
    names = trained(nn.Sequential(Block()))
    assert "model.0" in names  # the tanh and the sum
    assert "backward/model.0" in names


def test_recomputed_forwards_have_names() -> None:
    names = trained(nn.Sequential(Block(recompute=True), Block(recompute=True)))
    assert {"model.0.wide", "model.1.wide", "backward/model.0.wide", "backward/model.1.wide"} <= names


def test_names_do_not_make_another_program() -> None:
    """Two modules with equal graphs share one executable, whatever their names."""
    model = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Linear(4, 4)})

    @systolic.jit
    def step(x: torch.Tensor, which: str) -> torch.Tensor:
        return model[which](x)

    with torch.no_grad():
        step(torch.ones(2, 4), "a")
        step(torch.ones(2, 4), "b")
    digests = {compiled.reason for compiled in step.compiles}
    assert len(digests) == len(step.compiles) == 2


def test_a_closure_that_an_optimizer_runs_is_not_the_optimizer() -> None:
    model = nn.Linear(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    @systolic.jit
    def step(x: torch.Tensor) -> None:
        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = torch.lgamma(model(x).square() + 1).sum()
            loss.backward()
            return loss

        optimizer.step(closure)

    step(torch.randn(8, 16))
    scopes = {str(node.target): node.meta["scope"] for node in step.graph().nodes if node.op == "call_function"}
    assert scopes["aten.lgamma.default"] == ""
    assert "optimizer" in scopes.values()


def test_lines_are_those_of_the_step_not_of_who_calls_it() -> None:
    @systolic.jit
    def step(x: torch.Tensor) -> torch.Tensor:
        return x.exp()

    librarys = systolic.jit(torch.nn.functional.mse_loss)
    with torch.no_grad():
        step(torch.ones(3))
        librarys(torch.ones(3), torch.zeros(3))
    first = test_lines_are_those_of_the_step_not_of_who_calls_it.__code__.co_firstlineno
    assert lines(step) == {f"{__file__}:{first + 3}"}
    assert lines(librarys) == {""}


def lines(function: systolic.compiler.JitFunction) -> set[str]:
    return {node.meta["line"] for node in function.graph().nodes if node.op == "call_function"}
