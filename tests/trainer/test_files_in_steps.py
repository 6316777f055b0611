"""Files and texts that `training_step` writes: those that Lightning's writes, one for each step."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from beside_lightning import beside_lightning, loader, module_of, plain, trainer_of
from sklearn.metrics import precision_recall_fscore_support

import systolic
from systolic.callbacks import ProgressBar

T = torch.Tensor


def _step(module: Any, batch: Any, i: int) -> T:
    loss, place = module.loss(batch), f"{module.current_epoch}_{i}"
    with open(module.folder / "losses.csv", "a") as file:
        file.write(f"{i},{loss:.3f}\n")
    with open(f"{module.folder}/{place}.json", "w") as file:
        json.dump({"loss": round(loss.item(), 3), "labels": batch[1].tolist()}, file)
    torch.save({"loss": loss.detach(), "batch": i}, f"{module.folder}/{place}.pt")
    np.save(f"{module.folder}/{place}.npy", module(batch[0]).detach().numpy())
    module.seen.append(json.dumps([round(loss.item(), 2)]))
    guesses = module(batch[0]).argmax(1)
    precision, recall, f1, support = precision_recall_fscore_support(
        batch[1].numpy(), guesses.numpy(), average="macro", zero_division=0
    )
    module.log("precision", precision)
    sys.stdout.write(f"loss {loss:.3f}\n")
    return loss


def _written(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in sorted(folder.iterdir()):
        if path.suffix == ".pt":
            found[path.name] = plain(torch.load(path))
        elif path.suffix == ".npy":
            found[path.name] = plain(np.load(path))
        else:
            found[path.name] = path.read_text()
    return found


def test_files_are_those_of_lightning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    places = iter("ab")

    def prepare(module: Any) -> None:
        module.folder = tmp_path / next(places)
        module.folder.mkdir()

    beside_lightning({"training_step": _step}, lambda module: (_written(module.folder), plain(module.seen)), prepare=prepare)
    texts = [line for line in capsys.readouterr().out.splitlines() if line.startswith("loss ")]
    assert len(texts) == 12
    assert texts[:6] == texts[6:]


def test_a_callback_gets_the_stream_that_a_step_prints_to() -> None:
    """And not what stands for it while the step is traced."""
    given: list[Any] = []

    class Bar(ProgressBar):
        def disable(self) -> None:
            pass

        def print(self, *args: Any, **kwargs: Any) -> None:
            given.append((args, kwargs))

    def training_step(module: Any, batch: Any, i: int) -> T:
        module.print("loss", file=sys.stderr)
        return module.loss(batch)

    module = module_of(systolic, {"training_step": training_step}, lambda module: None)
    trainer_of(systolic, callbacks=[Bar()], enable_progress_bar=True).fit(module, loader(32, 1))
    assert given == [(("loss",), {"file": sys.stderr})] * 2
