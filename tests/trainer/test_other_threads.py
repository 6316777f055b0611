"""Steps that put values into queues and set events, for other threads: in every step, as under Lightning."""

from __future__ import annotations

import queue
import threading
from typing import Any

import pytest
import torch
from beside_lightning import beside_lightning

T = torch.Tensor


def prepare(module: Any) -> None:
    module.__dict__.update(first=queue.Queue(), second=queue.Queue(), third=threading.Event(), stop=threading.Event())


@pytest.mark.parametrize("devices", [1, 4])
def test_a_thread_gets_the_values_of_every_step(devices: int) -> None:
    got: list[list[Any]] = []

    def training_step(module: Any, batch: Any, i: int) -> T:
        loss = module.loss(batch)
        module.first.put((i, loss.detach()))
        module.second.put_nowait({"loss": loss.item(), "step": module.global_step})
        return loss

    def listen(module: Any) -> None:
        rows: list[Any] = []
        while (row := module.first.get(timeout=60)) is not None:
            rows.append([row[0], float(row[1]), module.second.get(timeout=60)])
        got.append(rows)

    def on_train_start(module: Any) -> None:
        module.__dict__["listener"] = threading.Thread(target=listen, args=(module,))
        module.listener.start()

    def on_train_end(module: Any) -> None:
        module.first.put(None)
        module.listener.join(timeout=60)

    methods = {"training_step": training_step, "on_train_start": on_train_start, "on_train_end": on_train_end}
    module = beside_lightning(methods, lambda module: got[-1], prepare=prepare, devices=devices)
    assert len(got[-1]) == 6
    assert len(module.trainer.compiles) == 1


def test_an_event_is_set_and_cleared_in_every_step() -> None:
    def training_step(module: Any, batch: Any, i: int) -> T:
        module.third.set() if i % 2 == 0 else module.third.clear()
        return module.loss(batch)

    def on_train_batch_end(module: Any, *_: Any) -> None:
        module.seen.append(module.third.is_set())

    methods = {"training_step": training_step, "on_train_batch_end": on_train_batch_end}
    module = beside_lightning(methods, lambda module: module.seen, prepare=prepare)
    assert module.seen == [True, False, True] * 2


def test_a_step_looks_whether_an_event_is_set() -> None:
    def on_train_batch_start(module: Any, batch: Any, i: int) -> None:
        if module.global_step == 4:
            module.stop.set()

    def training_step(module: Any, batch: Any, i: int) -> T:
        if module.stop.is_set():
            module.trainer.should_stop = True
            return module.loss(batch) * 2
        return module.loss(batch)

    methods = {"training_step": training_step, "on_train_batch_start": on_train_batch_start}
    beside_lightning(methods, lambda module: module.trainer.global_step, prepare=prepare, epochs=5)


class Doubled(threading.Thread):
    """Keeps what it is for in attributes, and not in arguments."""

    def __init__(self, into: torch.Tensor, value: torch.Tensor) -> None:
        super().__init__(daemon=True)
        self.into, self.value = into, value

    def run(self) -> None:
        with torch.no_grad():
            self.into.add_(self.value * 2)


@pytest.mark.parametrize("kind", ["target", "subclass"])
@pytest.mark.parametrize("devices", [1, 4])
def test_a_thread_that_works_with_tensors_of_the_step(devices: int, kind: str) -> None:
    """A moving average that is computed beside the step, and that the next step waits for."""

    def prepare(module: Any) -> None:
        module.__dict__.update(average=torch.zeros(8, 4), thread=None)

    def update(average: torch.Tensor, weight: torch.Tensor, decay: float) -> None:
        with torch.no_grad():
            average.mul_(decay).add_(weight, alpha=1 - decay)

    def training_step(module: Any, batch: Any, i: int) -> torch.Tensor:
        loss = module.loss(batch)
        weight = module.inner.weight.data
        if kind == "target":
            thread = threading.Thread(target=update, args=(module.average, weight), kwargs={"decay": 0.9})
        else:
            thread = Doubled(module.average, weight)
        thread.start()
        thread.join()
        assert not thread.is_alive()
        return loss + module.average.sum() * 0.1 * module.outer.weight.sum()

    beside_lightning(
        {"training_step": training_step}, lambda module: module.average.flatten().tolist(), prepare=prepare, devices=devices
    )
