"""Steps as people write them, trained by one of some processes: what they computed, printed and kept goes to the directory."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from typing import Any

from trainer.beside_lightning import loader, module_of, trainer_of
from trainer.evaluation_bodies import held, methods_of, prepare
from trainer.step_sweep import train

import systolic
from systolic import distributed


def evaluated(name: str, folder: Path, cores: int, processes: int) -> Any:
    """What a module holds, logged and weighs after epochs with such a validation step."""
    module = module_of(systolic, methods_of(name), lambda module: prepare(module, folder))
    trainer = trainer_of(systolic, max_epochs=2, devices=cores)
    each = 16 // (cores * processes)
    trainer.fit(module, loader(48, 1, each), loader(36, 2, each))
    metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
    return held(module), metrics, [p.detach().double().sum().item() for p in module.parameters()]


def main() -> None:
    directory, kind, cores, *names = sys.argv[1:]
    distributed.join_processes()
    count, index = distributed.process_count(), distributed.process_index()
    found: dict[str, Any] = {}
    for name in names:
        if kind == "train":
            found[name] = train(name, compiled=True, devices=int(cores), processes=count)
        else:
            found[name] = evaluated(name, Path(directory) / f"{name}{index}", int(cores), count)
    with open(Path(directory) / f"{index}.pkl", "wb") as file:
        pickle.dump(found, file)
    sys.stdout.write(json.dumps({"process": index}) + "\n")


if __name__ == "__main__":
    main()
