"""Data that look at what is trained, an agent that plays in the loader: read in step with training, as under Lightning."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from as_lightning import Package, require_same
from beside_lightning import trainer_of
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler

import systolic

T = torch.Tensor
_EPISODE = 16  # of two batches: the second batch draws nothing
current: list[Any] = []


class Stream(IterableDataset[Any]):
    def __init__(self, play: Callable[[], Iterator[Any]]) -> None:
        self.play = play

    def __iter__(self) -> Iterator[Any]:
        return self.play()


class Agent:
    def __init__(self, net: nn.Module, seen: list[Any], draws: bool = False) -> None:
        self.net, self.seen, self.draws = net, seen, draws

    def play(self) -> Iterator[Any]:
        rng = np.random.RandomState(7)
        for _ in range(5):
            states = torch.from_numpy(rng.randn(_EPISODE, 4).astype("float32"))
            with torch.no_grad():
                scores = self.net(states)
            self.seen.append(scores.sum())
            actions = torch.multinomial(scores.softmax(1), 1)[:, 0] if self.draws else scores.argmax(1)
            yield from zip(states, actions.tolist(), strict=True)

    def __call__(self, index: int) -> tuple[T, int]:
        state = torch.from_numpy(np.random.RandomState(index).randn(4).astype("float32"))
        with torch.no_grad():
            scores = self.net(state)
        self.seen.append(scores.sum())
        return state, int(scores.argmax())


class Rows(Dataset[Any]):
    def __init__(self, row: Callable[[int], Any]) -> None:
        self.row = row

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        return self.row(index)


class Hardest(Sampler[int]):
    """Goes on with one of two rows, by the agent's answer."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent

    def __iter__(self) -> Iterator[int]:
        for index in range(20):
            yield 2 * index + self.agent(index)[1]

    def __len__(self) -> int:
        return 20


def fixed_row(index: int) -> tuple[T, int]:
    return torch.from_numpy(np.random.RandomState(index).randn(4).astype("float32")), index % 2


def row_of_current(index: int) -> Any:
    return current[-1](index)


def in_closure(agent: Agent) -> Any:
    class Closed(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            return agent.play()

    return DataLoader(Closed(), batch_size=8)


def of_running_generator(agent: Agent) -> Any:
    def batches(agent: Agent) -> Iterator[Any]:
        samples = agent.play()
        while group := [sample for _, sample in zip(range(8), samples, strict=False)]:
            yield torch.stack([state for state, _ in group]), torch.tensor([action for _, action in group])

    class Again:
        def __iter__(self) -> Iterator[Any]:
            yield from batches(agent)

    return Again()


def collated(agent: Agent) -> Any:
    def collate(rows: list[int]) -> Any:
        return torch.utils.data.default_collate([agent(row) for row in rows])

    return DataLoader(Rows(int), batch_size=8, collate_fn=collate)


def as_global(agent: Agent) -> Any:
    current.append(agent)
    return DataLoader(Rows(row_of_current), batch_size=8)


LOADERS: dict[str, Callable[[Agent], Any]] = {
    "bound method": lambda agent: DataLoader(Stream(agent.play), batch_size=8),
    "partial": lambda agent: DataLoader(Rows(functools.partial(Agent.__call__, agent)), batch_size=8),
    "nested": lambda agent: DataLoader(torch.utils.data.Subset(Rows(lambda i: {"a": [agent]}["a"][0](i)), range(32)), 8),
    "closure of a class": in_closure,
    "running generator": of_running_generator,
    "collate": collated,
    "global": as_global,
    "sampler": lambda agent: DataLoader(Rows(fixed_row), batch_size=4, sampler=Hardest(agent)),
    "batch sampler": lambda agent: DataLoader(
        Rows(fixed_row), batch_sampler=torch.utils.data.BatchSampler(Hardest(agent), 4, False)
    ),
    "two loaders": lambda agent: {"a": LOADERS["bound method"](agent), "b": DataLoader(Rows(fixed_row), 8)},
}


def play(package: Package, make: Callable[[Agent], Any], draws: bool = False, validates: bool = True, **options: Any) -> Any:
    torch.manual_seed(3)
    seen: list[Any] = []

    class Policy(package.L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(4, 2)

        def training_step(self, batch: Any, i: int) -> T:
            parts = batch.values() if isinstance(batch, dict) else [batch]
            return torch.stack([nn.functional.cross_entropy(2 * self.net(x), 1 - a) for x, a in parts]).sum()

        def validation_step(self, batch: Any, i: int) -> None:
            self.log("v", self.net(batch[0]).mean())

        def on_train_batch_end(self, *_: Any) -> None:
            seen.append(-1.0)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.3)

    module = Policy()
    agent = Agent(module.net, seen, draws)
    trainer = package.trainer(max_epochs=3, **{"num_sanity_val_steps": 0, **options})
    torch.manual_seed(4)
    trainer.fit(module, make(agent), make(agent) if validates else None)
    metric = float(trainer.callback_metrics["v"]) if validates else 0.0
    return seen, module.net.weight.detach().clone(), metric, torch.rand(1)


@pytest.mark.parametrize("name", [name for name in LOADERS if name != "two loaders"])
def test_an_agent_plays_with_the_weights_of_its_instant(name: str) -> None:
    found = require_same(lambda package: play(package, LOADERS[name]))
    assert len(set(map(float, found[0]))) > 3, "the agent saw that it was trained"


def test_an_agent_plays_in_one_of_two_loaders() -> None:
    require_same(lambda package: play(package, LOADERS["two loaders"], validates=False))


@pytest.mark.parametrize("validates", [False, True])
def test_an_agent_draws_its_actions(validates: bool) -> None:
    require_same(lambda package: play(package, LOADERS["bound method"], True, validates, val_check_interval=4))


class Data(systolic.LightningDataModule):
    def __init__(self, threads: set[str], method: str) -> None:
        super().__init__()
        self.threads, self.method = threads, method

    def train_dataloader(self) -> Any:
        return DataLoader(Rows(fixed_row), 4, collate_fn=getattr(self, self.method))

    def plain(self, rows: Any) -> Any:
        self.threads.add(threading.current_thread().name)
        return torch.utils.data.default_collate(rows)

    def by_epoch(self, rows: Any) -> Any:
        return self.turned(self.plain(rows))

    def turned(self, batch: Any) -> Any:
        return [batch[0] * self.trainer.current_epoch, batch[1]]


@pytest.mark.parametrize(("method", "ahead"), [("plain", True), ("by_epoch", False)])
def test_what_looks_at_nothing_of_training_is_read_ahead(method: str, ahead: bool) -> None:
    threads: set[str] = set()

    class Plain(systolic.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(4, 2)

        def training_step(self, batch: Any, i: int) -> T:
            return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.3)

    trainer = trainer_of(systolic, max_epochs=2)
    trainer.fit(Plain(), datamodule=Data(threads, method))
    assert ("systolic-prefetch" in threads) is ahead


def test_another_thread_reads_whole_weights_while_steps_run() -> None:
    started, stop, seen = threading.Event(), threading.Event(), []

    def row(index: int) -> T:
        if index == 39:
            started.set()
        return torch.ones(1)

    class Even(systolic.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.large, self.small = nn.Parameter(torch.zeros(100_000)), nn.Parameter(torch.zeros(5))

        def training_step(self, batch: T, i: int) -> T:
            return (self.large.sum() + self.small.sum()) * batch.mean()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 1.0)

    module = Even()

    def look() -> None:
        started.wait(60)
        while not stop.is_set():
            large, small = module.large.detach().clone(), module.small.detach().clone()
            seen.append((large.min().item(), large.max().item(), small.min().item(), small.max().item()))

    class Ends(systolic.Callback):
        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            stop.set()
            reader.join(60)

    errors: list[BaseException] = []
    reader = threading.Thread(target=lambda: _noting(look, errors))
    reader.start()
    trainer = trainer_of(systolic, max_epochs=20, callbacks=[Ends()])
    trainer.fit(module, DataLoader(Rows(row), 1))
    assert not errors
    assert len(seen) > 5
    assert all(low == high and least == most for low, high, least, most in seen)
    assert module.large[0].item() == -800


def _noting(function: Callable[[], None], errors: list[BaseException]) -> None:
    try:
        function()
    except BaseException as error:
        errors.append(error)
