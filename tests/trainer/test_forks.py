"""A process that is forked from one that trains: what works there works, and nothing waits for ever."""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset
from trainer.runs import Line, trainer

import systolic as L

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.* may lead to deadlocks:DeprecationWarning")


def step(self: Line, batch: Any) -> torch.Tensor:
    return self.layer(batch[0]).square().mean()


def loader() -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.randn(16, 4)), batch_size=4)


def trained() -> Line:
    module = Line(step)
    trainer().fit(module, loader())
    return module


def told(queue: Any, act: Callable[[], object]) -> None:
    try:
        queue.put(("value", act()))
    except BaseException as error:
        queue.put((type(error).__name__, f"{error}\n{traceback.format_exc()}"))


def in_child(method: str, act: Callable[[], object]) -> tuple[str, Any]:
    """The outcome of a function in a process that is started in some way; it has two minutes."""
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    child = context.Process(target=told, args=(queue, act))
    child.start()
    try:
        return queue.get(timeout=120)
    finally:
        child.join(20)
        child.kill()


def trains() -> int:
    trained()
    return os.getpid()


@pytest.mark.tables
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_process_of_its_own_trains(method: str) -> None:
    trained()
    kind, value = in_child(method, trains)
    assert kind == "value", value
    assert value != os.getpid()


def compiled() -> tuple[Line, Any]:
    module = trained()
    return module, L.jit(lambda x: module.layer(x).sum())


def test_a_fork_is_told_that_it_cannot_train() -> None:
    module, function = compiled()
    function(torch.ones(4, 4))
    acts: list[Callable[[], object]] = [
        lambda: trainer().fit(module, loader()),
        lambda: trainer().fit(Line(step), loader()),
        lambda: function(torch.ones(4, 4)),
        lambda: L.jit(torch.sin),
    ]
    for act in acts:
        kind, text = in_child("fork", act)
        assert kind == "RuntimeError", text
        assert f"was forked from process {os.getpid()}, which had started JAX" in text
        assert 'multiprocessing.get_context("spawn")' in text


def test_a_fork_may_use_what_was_trained() -> None:
    """Its weights are the host's again; eager training needs no device."""
    module = trained()
    expected = module.layer(torch.ones(1, 4)).item()
    assert in_child("fork", lambda: module.layer(torch.ones(1, 4)).item()) == ("value", expected)
    assert in_child("fork", lambda: trainer(compile=False).fit(module, loader())) == ("value", None)


def test_the_parent_goes_on() -> None:
    module = trained()
    assert in_child("fork", lambda: 3) == ("value", 3)
    trainer().fit(module, loader())


class LooksAtWeights(Dataset[Any]):
    """Samples that depend on the weights of the module that is trained; its workers are forks."""

    def __init__(self, module: Line) -> None:
        self.module = module

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> tuple[torch.Tensor]:
        return (torch.full((4,), float(index)) + self.module.layer.weight.detach().reshape(-1) * 0,)


def test_workers_that_look_at_the_weights_end() -> None:
    """They read them where the parent had computed them, or say why not."""
    module = Line(step)
    trainer(max_epochs=2).fit(module, DataLoader(LooksAtWeights(module), batch_size=4, num_workers=2))
