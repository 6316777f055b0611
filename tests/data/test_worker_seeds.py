"""`seed_everything(..., workers=True)`: workers draw what they draw under Lightning, in each process something else."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from typing import Any

import lightning
import numpy as np
import pytest
import torch
from lightning.fabric.utilities.seed import pl_worker_init_function as lightnings
from torch.utils.data import DataLoader, Dataset
from trainer.beside_lightning import module_of, trainer_of

import systolic
from systolic.utilities.random_state import isolated_random_state
from systolic.utilities.seed import pl_worker_init_function


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("PL_GLOBAL_SEED", "PL_SEED_WORKERS"):
        monkeypatch.setenv(name, "0")  # put back afterwards
    with isolated_random_state(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's own
        yield


def drawn(seed: Any, worker: int, rank: int | None) -> tuple[float, ...]:
    """What the three generators give in a worker whose loader drew 1234."""
    torch.manual_seed(1234 + worker)
    seed(worker, rank)
    return torch.rand(1).item(), random.random(), float(np.random.rand())


@pytest.mark.parametrize(("worker", "rank"), [(0, 0), (1, 0), (0, 1), (3, 255), (2, None)])
def test_numbers(worker: int, rank: int | None) -> None:
    assert drawn(pl_worker_init_function, worker, rank) == drawn(lightnings, worker, rank)


def test_each_worker_of_each_process_has_its_own() -> None:
    assert len({drawn(pl_worker_init_function, worker, rank) for worker in range(4) for rank in range(4)}) == 16


class Drawing(Dataset[Any]):
    """Rows with a number of each of the generators."""

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> Any:
        return torch.full((4,), index / 16) + torch.tensor(
            [torch.rand(1).item(), random.random(), np.random.rand(), 0]
        ), index % 3


def own(worker_id: int) -> None:
    """A user's `worker_init_fn`."""
    torch.manual_seed(worker_id)
    random.seed(worker_id)
    np.random.seed(worker_id)


@pytest.mark.parametrize(("workers", "init"), [(True, None), (False, None), (True, own)])
def test_training_sees_what_it_sees_under_lightning(workers: bool, init: Any) -> None:
    def rows_of(library: Any) -> list[torch.Tensor]:
        seen: list[torch.Tensor] = []

        def validation_step(self: Any, batch: Any, batch_idx: int) -> None:
            self.log("mean", batch[0].mean())

        def on_train_batch_end(self: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            seen.append(batch[0].clone())

        def on_validation_batch_end(self: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            seen.append(batch[0].clone())

        hooks = {f.__name__: f for f in (validation_step, on_train_batch_end, on_validation_batch_end)}
        module = module_of(library, hooks, lambda module: None)
        library.seed_everything(7, workers=workers, verbose=False)
        loaders = [DataLoader(Drawing(), 4, num_workers=2, worker_init_fn=init) for _ in range(2)]
        trainer_of(library, max_epochs=2).fit(module, *loaders)
        return seen

    ours, theirs = rows_of(systolic), rows_of(lightning)
    assert len(ours) == len(theirs) > 0
    for mine, his in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, his, rtol=0, atol=0)
