"""A run with the loader of another package, saved at several instants and resumed from each; ends with an error where they differ.

A process of its own: torchdata changes PyTorch's samplers when it is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import TensorDataset
from trainer.resuming import SavesEverywhere, columns, require_equal, run

INSTANTS = (
    "on_train_batch_start 0 0", "after_batch 0 1", "on_validation_end 0 2", "after_batch 0 4", "after_batch 0 7",
    "on_train_epoch_end 0 7", "on_train_epoch_start 1 7", "after_batch 1 3",
)  # fmt: skip


def torchdata_loader(workers: int) -> Any:
    from torchdata.stateful_dataloader import StatefulDataLoader

    return StatefulDataLoader(TensorDataset(*columns()), batch_size=4, shuffle=True, num_workers=workers)


def grain_dataset(workers: int) -> Any:
    import grain

    x, y = columns()
    rows = grain.MapDataset.range(len(x)).shuffle(seed=3)
    batches = rows.batch(4).map(lambda index: (x[torch.from_numpy(index)], y[torch.from_numpy(index)]))
    return batches.to_iter_dataset()


class Rows:
    """Grain's DataLoader reads what has a length and items."""

    def __init__(self) -> None:
        self.columns = columns()

    def __repr__(self) -> str:
        return "Rows()"  # Grain compares it with that of the checkpoint

    def __len__(self) -> int:
        return len(self.columns[0])

    def __getitem__(self, index: int) -> Any:
        return self.columns[0][index].numpy(), self.columns[1][index].numpy()


def grain_loader(workers: int) -> Any:
    import grain.python as grain
    from absl import flags

    flags.FLAGS(["test"])  # Grain's workers read flags, which its users' `app.run` has parsed

    class ToTensors(grain.MapTransform):
        def map(self, element: Any) -> Any:
            return tuple(torch.from_numpy(part) for part in element)

    sampler = grain.IndexSampler(len(Rows()), shard_options=grain.NoSharding(), shuffle=True, num_epochs=1, seed=4)
    operations = [grain.Batch(4), ToTensors()]
    return grain.DataLoader(data_source=Rows(), sampler=sampler, operations=operations, worker_count=workers)


LOADERS: dict[str, Callable[[int], Any]] = {"torchdata": torchdata_loader, "grain": grain_dataset, "grain loader": grain_loader}


def main(path: Path, kind: str, workers: int) -> None:
    torch.set_num_threads(1)
    make, saves = LOADERS[kind], SavesEverywhere(path, INSTANTS)
    options: dict[str, Any] = {"accumulate_grad_batches": 2, "val_check_interval": 3}
    whole = run(path, make(workers), extra=(saves,), **options)
    assert tuple(saves.paths) == INSTANTS, saves.paths
    for name, checkpoint in saves.paths.items():
        require_equal(whole, run(path, make(workers), checkpoint, **options), f"{kind}, {name}")
    sys.stdout.write(f"{len(saves.paths)} resumed\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
