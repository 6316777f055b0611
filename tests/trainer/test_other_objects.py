"""Tensors that hooks put in the place of others between steps: equal to Lightning, and traced once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from beside_lightning import Method, beside_lightning, plain

T = torch.Tensor
Case = tuple[Callable[[Any], None], Callable[[Any, Any], T], Callable[[Any, Any, Any, int], None]]
"""What the module has at first, its step, and what happens after it: with the module, its outputs, the batch and its number."""


def _scaled(module: Any, batch: Any) -> T:
    return module.loss(batch) / (module.last + 1)


def _has(**tensors: Any) -> Callable[[Any], None]:
    def prepare(module: Any) -> None:
        for name, value in tensors.items():
            setattr(module, name, value.clone() if isinstance(value, T) else value())

    return prepare


_ONE = _has(last=torch.ones(()))


def _put(name: str, value: Callable[[Any, Any, Any, int], Any]) -> Callable[[Any, Any, Any, int], None]:
    return lambda module, outputs, batch, i: setattr(module, name, value(module, outputs, batch, i))


def _take_turns(module: Any, outputs: Any, batch: Any, i: int) -> None:
    module.last[i % 3] = outputs["loss"].detach()


def _appended(module: Any, outputs: Any, batch: Any, i: int) -> None:
    module.last.append(outputs["loss"].detach())


def _exchange(module: Any, outputs: Any, batch: Any, i: int) -> None:
    module.last, module.other = module.other, module.last


def _with_a_note(module: Any, outputs: Any, batch: Any, i: int) -> None:
    module.last = outputs["loss"].detach()
    module.seen.append(outputs["loss"].item())


def _noisy(module: Any, batch: Any) -> T:
    return F.cross_entropy(module(batch[0] + 0.1 * module.last), batch[1])


def _near(module: Any, batch: Any) -> T:
    return module.loss(batch) + 0.1 * ((module.inner.weight - module.last) ** 2).sum()


def _of_three(module: Any, batch: Any) -> T:
    return module.loss(batch) * (1 + sum(module.last) / 3)


def _branching(module: Any, batch: Any) -> T:
    loss = module.loss(batch)
    return loss * 0.5 if module.last > 0.6 else loss


def _three() -> list[T]:
    return [torch.zeros(()) for _ in range(3)]


CASES: dict[str, Case] = {
    "the loss": (_ONE, _scaled, _put("last", lambda m, o, b, i: o["loss"].detach())),
    "an average": (_ONE, _scaled, _put("last", lambda m, o, b, i: 0.9 * m.last + 0.1 * o["loss"].detach())),
    "a number": (_ONE, _scaled, _put("last", lambda m, o, b, i: torch.tensor(float(o["loss"])))),
    "with a note": (_ONE, _scaled, _with_a_note),
    "the batch": (_has(last=torch.zeros(16, 4)), _noisy, _put("last", lambda m, o, b, i: b[0])),
    "a buffer": (lambda m: m.register_buffer("last", torch.zeros(())), _scaled, _put("last", lambda m, o, b, i: m.last + 0.1)),
    "a copy of weights": (
        _has(last=torch.zeros(8, 4)), _near, _put("last", lambda m, o, b, i: m.inner.weight.detach().clone())
    ),
    "in a list": (_has(last=_three), _of_three, _take_turns),
    "in a deque": (_has(last=lambda: deque(_three(), maxlen=3)), _of_three, _appended),
    "exchanged": (_has(last=torch.ones(()), other=torch.zeros(())), _scaled, _exchange),
    "decides": (_ONE, _branching, _put("last", lambda m, o, b, i: torch.tensor(0.5 + 0.2 * (i % 2)))),
}  # fmt: skip
OTHERS: dict[str, Case] = {
    "the weights themselves": (_has(last=torch.zeros(8, 4)), _near, _put("last", lambda m, o, b, i: m.inner.weight.detach())),
    "one for two": (_has(last=torch.ones(()), other=torch.zeros(())), _scaled, _put("last", lambda m, o, b, i: m.other)),
    "another shape": (
        _has(last=torch.ones(1)), lambda m, b: m.loss(b) * m.last.sum(), _put("last", lambda m, o, b, i: torch.ones(1 + i % 2))
    ),
    "another dtype": (_ONE, _scaled, _put("last", lambda m, o, b, i: torch.ones((), dtype=torch.float64 if i else None))),
    "takes gradients": (_ONE, _scaled, _put("last", lambda m, o, b, i: torch.tensor(0.5, requires_grad=i == 1))),
    "other strides": (
        _has(last=torch.ones(8, 3)), lambda m, b: m.loss(b) * m.last.mean(), _put("last", lambda m, o, b, i: torch.ones(3, 8).t())
    ),
}  # fmt: skip


def _methods(case: Case) -> dict[str, Method]:
    _, step, after = case

    def on_train_batch_end(module: Any, outputs: Any, batch: Any, i: int) -> None:
        after(module, outputs, batch, i)

    return {"training_step": lambda module, batch, i: step(module, batch), "on_train_batch_end": on_train_batch_end}


def _held(module: Any) -> Any:
    return plain([module.last, module.seen])


@pytest.mark.parametrize("name", CASES)
def test_traced_once(name: str) -> None:
    module = beside_lightning(_methods(CASES[name]), _held, prepare=CASES[name][0], epochs=3, advice=False)
    reasons = [one.reason for one in module.trainer.compiles if one.reason != "tensors lie in other buffers"]
    assert len(reasons) == (2 if name == "decides" else 1), reasons


@pytest.mark.parametrize("name", OTHERS)
def test_what_a_trace_knows_of(name: str) -> None:
    beside_lightning(_methods(OTHERS[name]), _held, prepare=OTHERS[name][0], epochs=3, advice=False)


@pytest.mark.parametrize("name", ["the loss", "the batch", "a copy of weights", "in a list"])
def test_on_four_cores(name: str) -> None:
    module = beside_lightning(_methods(CASES[name]), _held, prepare=CASES[name][0], devices=4, advice=False)
    assert sum(one.trace_seconds > 0 for one in module.trainer.compiles) == 1


def test_in_an_object_after_the_step_that_reads_it() -> None:
    class Memory:
        def __init__(self) -> None:
            self.last = torch.ones(())

    def step(module: Any, batch: Any, i: int) -> T:
        return module.loss(batch) / (module.memory.last + 1)

    def after(module: Any, outputs: Any, batch: Any, i: int) -> None:
        module.memory.last = outputs["loss"].detach()

    methods = {"training_step": step, "on_train_batch_end": after}
    module = beside_lightning(
        methods, lambda module: plain(module.memory), prepare=lambda module: setattr(module, "memory", Memory()), epochs=3
    )
    assert len(module.trainer.compiles) <= 3


def test_a_number_that_becomes_something_else_meanwhile() -> None:
    def prepare(module: Any) -> None:
        module.k, module.kept, module.last = 1.0, [], torch.ones(())

    def step(module: Any, batch: Any, i: int) -> T:
        loss = module.loss(batch)
        module.kept.append(loss.detach())
        return loss * (0.1 if module.k is None else module.k) / (1 + module.last)

    def after(module: Any, outputs: Any, batch: Any, i: int) -> None:
        module.seen.append(plain(module.kept))
        module.kept, module.last = [], outputs["loss"].detach()
        module.k = {3: None, 4: torch.tensor(0.5), 5: 2}.get(len(module.seen), 0.5 + 0.1 * i)

    methods = {"training_step": step, "on_train_batch_end": after}
    beside_lightning(methods, lambda module: plain([module.seen, module.k]), prepare=prepare, epochs=3, advice=False)
