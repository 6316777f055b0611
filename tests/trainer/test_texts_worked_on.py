"""Text of values that another function works on: validation equals Lightning's, training refuses; kept text has one trace."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
import torch
from beside_lightning import Method, beside_lightning, loader, module_of, trainer_of
from torchmetrics.text import WordErrorRate

import systolic

TABLE = {"0": 2.0, "1": 5.0}
SHOWN: list[str] = []


def _classes(self: Any, batch: Any) -> list[str]:
    return [str(t) for t in self(batch[0]).argmax(1).tolist()]


def _words(texts: Any) -> int:
    return sum(len(text.split()) for text in texts)


def _equal(texts: Any, others: Any) -> int:
    return sum(a == b for a, b in zip(texts, others, strict=True))


def _pairs(texts: Any) -> int:
    return Counter(a + b for a, b in zip(texts, texts, strict=True)).most_common(1)[0][1]


def _signs(text: Any) -> int:
    found = 0
    for sign in text:
        found += sign == "1"
    return found


def _is_short(text: Any) -> bool:
    return _length(text=text) < 9


def _length(*, text: Any) -> int:
    return len(text)


def _of_an_attribute(self: Any) -> int:
    return len(self.status)


def _of_a_list(self: Any) -> int:
    return sum("1" in one for one in self.texts)


def _keeps_in_an_attribute(self: Any, batch: Any) -> None:
    self.status = f"{self.loss(batch).item() * 1e4:.0f} of it"


def _metric(self: Any, batch: Any) -> Any:
    texts = _classes(self, batch)
    self.seen.extend(texts)
    return self.metric(texts, [str(t) for t in batch[1].tolist()])


def _by_attribute(self: Any, batch: Any) -> Any:
    _keeps_in_an_attribute(self, batch)
    return _of_an_attribute(self)


def _by_list(self: Any, batch: Any) -> Any:
    self.texts = [f"class {text}" for text in _classes(self, batch)]
    return _of_a_list(self)


def _by_global(self: Any, batch: Any) -> Any:
    SHOWN[:] = [" ".join(_classes(self, batch))]
    return _of_global()


def _of_global() -> int:
    return SHOWN[0].count("1")


def _in_the_step_and_kept(self: Any, batch: Any) -> Any:
    text = f"{self.loss(batch).item() * 1e4:.0f}"
    self.seen.append(text)
    return len(text)


def _by_decoding(self: Any, batch: Any) -> Any:
    return sum(len(one) for one in [f"<{text}>" for text in _classes(self, batch)] if one != "<1>")


WORK: dict[str, Any] = {
    "a metric": _metric,
    "words": lambda self, batch: _words(_classes(self, batch)),
    "words of joined text": lambda self, batch: _words([" ".join(_classes(self, batch))]),
    "equal": lambda self, batch: _equal(_classes(self, batch), [str(t) for t in batch[1].tolist()]),
    "equal to others": lambda self, batch: _equal([f"is {t}" for t in _classes(self, batch)], ["is 1"] * len(batch[1])),
    "different signs": lambda self, batch: len(set("".join(_classes(self, batch)))),
    "a counter": lambda self, batch: _pairs(_classes(self, batch)),
    "signs": lambda self, batch: _signs("".join(_classes(self, batch))),
    "a short one": lambda self, batch: _is_short("%.1f" % (self.loss(batch).item() * 1e6)),  # noqa: UP031
    "an attribute": _by_attribute,
    "a list that is kept": _by_list,
    "a global list": _by_global,
    "in the step, and kept": _in_the_step_and_kept,
    "by decoding": _by_decoding,
    "a table": lambda self, batch: sum(TABLE.get(text, 1.0) for text in _classes(self, batch)),
    "an expression": lambda self, batch: len(re.findall("1", "".join(map(str, self(batch[0]).argmax(1).tolist())))),
    "sorted": lambda self, batch: sorted(_classes(self, batch))[0] == "0",
}


def _with_metric(module: Any) -> None:
    module.metric = WordErrorRate()
    module.status, module.texts = "", []


@pytest.mark.parametrize("name", WORK)
def test_validation_equals_lightnings(name: str) -> None:
    def step(self: Any, batch: Any, i: int) -> None:
        self.log("of text", float(WORK[name](self, batch)))

    beside_lightning({"validation_step": step}, lambda module: module.seen, prepare=_with_metric)


@pytest.mark.parametrize("name", sorted(set(WORK) - {"a metric"}))
def test_training_refuses(name: str) -> None:
    def step(self: Any, batch: Any, i: int) -> torch.Tensor:
        return self.loss(batch) * WORK[name](self, batch)

    module = module_of(systolic, {"training_step": step}, _with_metric)
    with pytest.raises(systolic.CaptureError, match=r"(?s)test_texts_worked_on.py:\d+|value"):
        trainer_of(systolic).fit(module, loader(48, 1))


def _told(self: Any, texts: Any, *, end: str = "") -> None:
    for number, text in enumerate(texts):
        if number >= 0 and self.training is not None:
            self.seen.append(f"{number}: {text}{end}")


class _Row:
    def __init__(self, text: str, number: int) -> None:
        self.text, self.number = text, number


def _kept_somewhere(self: Any, batch: Any, i: int) -> torch.Tensor:
    loss = self.loss(batch)
    texts = [f"{one:.3f}" for one in batch[0][:2, 0].tolist()]
    self.seen.extend(texts)
    _told(self, texts, end="!")
    row = _Row(f"loss {loss:.3f}", i)
    self.seen.append(row)
    self.rows[i] = (f"{loss.item():.2f}", row.number)
    if i == 0 or row.number == 0:
        self.seen.append("first " + row.text)
    self.log("number of texts", float(len(texts)))
    self.status = ", ".join(texts)
    return loss


def _prepared(module: Any) -> None:
    module.rows, module.status = {}, ""


@pytest.mark.parametrize("devices", [1, 4])
def test_what_is_only_kept_has_one_trace(devices: int) -> None:
    methods: dict[str, Method] = {"training_step": _kept_somewhere, "validation_step": _kept_somewhere}

    def held(module: Any) -> Any:
        return [one if isinstance(one, str) else one.text for one in module.seen], module.rows, module.status

    module = beside_lightning(methods, held, prepare=_prepared, devices=devices)
    assert "on the host" not in "".join(one.reason for one in module.trainer.compiles)
    assert all(one.reason for one in module.trainer.compiles)
