"""Validation steps whose Python code wants values."""

from __future__ import annotations

import csv
import io
import json
import pickle
import re
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import precision_recall_fscore_support
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassAUROC
from trainer.beside_lightning import plain

T = torch.Tensor
WORDS = ["the", "cat", "sat"]


def decoded(module: Any, batch: Any, i: int) -> None:
    chosen = module(batch[0]).argmax(1)
    by_number = dict(enumerate(WORDS))
    module.seen += [[WORDS[k] for k in chosen.tolist()], " ".join(by_number[int(k)] for k in chosen)]
    module.seen.append(np.asarray(WORDS)[chosen.numpy()].tolist())


def counted(module: Any, batch: Any, i: int) -> None:
    module.counts = getattr(module, "counts", Counter())
    module.by_class = getattr(module, "by_class", defaultdict(list))
    chosen = module(batch[0]).argmax(1).tolist()
    module.counts.update(chosen)
    for label, guess in zip(batch[1].tolist(), chosen, strict=True):
        module.by_class[label].append(guess)
    module.seen.append((sorted(module.counts.items()), sorted(module.by_class.items())))


def in_an_array(module: Any, batch: Any, i: int) -> None:
    for label, guess in zip(batch[1].view(-1), module(batch[0]).argmax(1).view(-1), strict=True):
        module.matrix[label.long(), guess.long()] += 1
    module.seen.append(module.matrix.copy())


def text(module: Any, batch: Any, i: int) -> None:
    loss = module.loss(batch)
    rows = [[f"{v:.2f}" for v in row] for row in module(batch[0])[:2].tolist()]
    module.seen += [
        "%.3f of %d" % (loss, i),  # noqa: UP031 - as people write it
        f"{loss:.3f}".split("."),
        re.sub(r"\d\.", "x", f"{loss:.3f}"),
        f"{loss:.3f}".ljust(9),
    ]
    module.seen += [max(len(cell) for row in rows for cell in row), ",".join(map(str, module(batch[0]).argmax(1).numpy()))]


def files(module: Any, batch: Any, i: int) -> None:
    loss, guesses = module.loss(batch), module(batch[0])
    module.seen.append(json.dumps({"loss": round(loss.item(), 3), "guesses": guesses.argmax(1).tolist()}))
    rows = io.StringIO()
    csv.writer(rows).writerow([i, round(loss.item(), 3)])
    module.seen.append(rows.getvalue())
    with open(module.folder / "losses.txt", "a") as file:
        file.write(f"{loss:.3f}\n")
    torch.save(guesses.argmax(1), module.folder / f"{i}.pt")
    np.save(module.folder / f"{i}.npy", guesses.numpy())
    Image.fromarray((guesses.sigmoid() * 255).byte().numpy()).save(module.folder / f"{i}.png")
    module.seen += [len(pickle.dumps(guesses.argmax(1).numpy())), torch.load(module.folder / f"{i}.pt")]
    module.seen.append(np.asarray(Image.open(module.folder / f"{i}.png")).astype(int))


def of_libraries(module: Any, batch: Any, i: int) -> None:
    guesses = module(batch[0])
    rows, columns = linear_sum_assignment(guesses[:3].numpy())
    *_, f1, _ = precision_recall_fscore_support(batch[1], guesses.argmax(1), average="macro", zero_division=0)
    counts = np.unique(guesses.argmax(1).numpy(), return_counts=True)[1]
    module.log("f1", float(f1))
    module.seen += [rows, columns, counts, np.histogram(guesses.numpy(), bins=4)[0]]


def to_the_end_word(module: Any, batch: Any, i: int) -> None:
    words = module(batch[0]).argmax(1).tolist()
    module.seen.append(words[: words.index(2)] if 2 in words else words)
    taken = []
    for word in words:
        if word == 1:
            break
        taken.append(word)
    module.seen.append(taken)


def metrics(module: Any, batch: Any, i: int) -> None:
    guesses = module(batch[0])
    module.scores.update(guesses.softmax(1), batch[1])
    module.accuracy(guesses, batch[1])
    module.log("accuracy", module.accuracy, on_epoch=True)
    module.log("loss", F.cross_entropy(guesses, batch[1]), prog_bar=True)
    module.seen.append(f"{guesses.sum():.3f}".split("."))


def with_gradients(module: Any, batch: Any, i: int) -> None:
    with torch.enable_grad():
        x = batch[0].detach().clone().requires_grad_()
        loss = F.cross_entropy(module(x), batch[1])
        (gradient,) = torch.autograd.grad(loss, x)
    module.seen.append([f"{v:.3f}".split(".") for v in module(x + gradient.sign()).mean(0).tolist()])


BODIES = {
    body.__name__: body
    for body in (decoded, counted, in_an_array, text, files, of_libraries, to_the_end_word, metrics, with_gradients)
}


def methods_of(name: str) -> dict[str, Callable[..., Any]]:
    """A validation step, and what belongs to it."""

    def on_validation_epoch_end(module: Any) -> None:
        if name == "metrics":
            module.log_dict(module.scores.compute())
            module.scores.reset()

    return {"validation_step": BODIES[name], "on_validation_epoch_end": on_validation_epoch_end}


def prepare(module: Any, folder: Path) -> None:
    """Give a module what the steps use.

    Args:
        module: at the end of its constructor.
        folder: to make, for files.
    """
    folder.mkdir()
    module.matrix, module.folder = np.zeros((3, 3), int), folder
    module.scores = MetricCollection({"a": MulticlassAccuracy(3), "auroc": MulticlassAUROC(3)})
    module.accuracy = MulticlassAccuracy(3)


def held(module: Any) -> Any:
    """What a module and its folder hold."""
    written = module.folder / "losses.txt"
    return plain(module.seen), written.read_text() if written.exists() else ""
