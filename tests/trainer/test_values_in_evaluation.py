"""Evaluation steps whose Python code wants values: they see what they see under Lightning, and their modules are programs."""

from __future__ import annotations

import csv
import io
import json
import os
import pickle
import re
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from beside_lightning import beside_lightning, loader, module_of, plain, trainer_of
from PIL import Image
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import precision_recall_fscore_support
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassAUROC

import systolic

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


BODIES = [decoded, counted, in_an_array, text, files, of_libraries, to_the_end_word, metrics, with_gradients]


def _methods(body: Callable[..., None]) -> dict[str, Callable[..., Any]]:
    def on_validation_epoch_end(module: Any) -> None:
        if body is metrics:
            module.log_dict(module.scores.compute())
            module.scores.reset()

    return {"validation_step": body, "on_validation_epoch_end": on_validation_epoch_end}


@pytest.mark.parametrize("devices", [1, 8])
@pytest.mark.parametrize("body", BODIES)
def test_sees_what_it_sees_under_lightning(
    body: Callable[..., None], devices: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    places = iter("ab")

    def prepare(module: Any) -> None:
        module.matrix, module.folder = np.zeros((3, 3), int), tmp_path / next(places)
        module.folder.mkdir()
        module.scores = MetricCollection({"a": MulticlassAccuracy(3), "auroc": MulticlassAUROC(3)})
        module.accuracy = MulticlassAccuracy(3)

    def held(module: Any) -> Any:
        written = module.folder / "losses.txt"
        return plain(module.seen), written.read_text() if written.exists() else ""

    beside_lightning(_methods(body), held, prepare=prepare, devices=devices)
    told = "validation_step runs on the host, and each module that it calls as a program" in caplog.text
    assert told is (body not in (to_the_end_word, counted)), "a few ways through the step have a program each"


def _keep_words(module: Any, batch: Any, i: int) -> list[str]:
    return [WORDS[k] for k in json.loads(json.dumps(module(batch[0]).argmax(1).tolist()))]


def test_modules_are_programs_in_tests_and_predictions() -> None:
    module = module_of(systolic, {"test_step": _keep_words, "predict_step": _keep_words}, lambda module: None)
    trainer = trainer_of(systolic)
    trainer.fit(module, loader(48, 1))
    trainer.test(module, loader(36, 2), verbose=False)
    compiled = sum(one.is_new_executable for one in trainer.compiles)
    assert compiled == 2, f"the module, for batches of 16 and the last one of 4: {trainer.compiles}"
    with torch.no_grad():
        module.eval()
        expected = [_keep_words(module, batch, 0) for batch in loader(36, 2)]
    assert trainer.predict(module, loader(36, 2)) == expected


def test_a_module_that_wants_values_is_run_and_what_it_calls_are_programs() -> None:
    class Words(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 3)

        def forward(self, x: T) -> list[str]:
            return [WORDS[k] for k in sorted(Counter(self.layer(x).argmax(1).tolist()))]

    def prepare(module: Any) -> None:
        module.words = Words()

    def validation_step(module: Any, batch: Any, i: int) -> None:
        module.seen.append(module.words(batch[0]))

    module = beside_lightning({"validation_step": validation_step}, lambda module: module.seen, prepare=prepare)
    assert module.seen


def test_an_error_of_the_users_stays_his() -> None:
    def validation_step(module: Any, batch: Any, i: int) -> None:
        json.dumps(module(batch[0]).tolist())
        raise KeyError("mine")

    module = module_of(systolic, {"validation_step": validation_step}, lambda module: None)
    with pytest.raises(KeyError, match="mine"):
        trainer_of(systolic).fit(module, loader(48, 1), loader(36, 2))


def test_a_step_that_asks_for_nothing_fails_once(tmp_path: Path) -> None:
    calls = os.open(tmp_path / "calls", os.O_WRONLY | os.O_CREAT)  # what a failed trace leaves in Python's objects is put back

    def validation_step(module: Any, batch: Any, i: int) -> None:
        os.write(calls, b"x")
        module(batch[0], "too many")

    module = module_of(systolic, {"validation_step": validation_step}, lambda module: None)
    with pytest.raises(TypeError):
        trainer_of(systolic).fit(module, loader(48, 1), loader(36, 2))
    os.close(calls)
    assert (tmp_path / "calls").read_bytes() == b"x"


def test_many_ways_through_a_step_end_on_the_host(caplog: pytest.LogCaptureFixture) -> None:
    def validation_step(module: Any, batch: Any, i: int) -> None:
        for place, value in enumerate(module(batch[0])[:8].flatten()):
            if value > 0.1:
                module.seen.append((i, place))

    module = beside_lightning({"validation_step": validation_step}, lambda module: module.seen, epochs=6)
    assert module.seen
    assert "compiled again and again" in caplog.text
