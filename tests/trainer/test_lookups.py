"""Numbers that a step looks up by a number of its own, and bounds of numbers: one program, equal to Lightning."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from beside_lightning import beside_lightning, loader, module_of, plain, trainer_of

import systolic

T = torch.Tensor
Body = Callable[[Any, Any, int], T]
"""From a module, a batch and its number to the loss."""


def _prepare(module: Any) -> None:
    random.seed(0)
    np.random.seed(0)
    module.array, module.single = np.linspace(0.1, 1, 40), np.linspace(0.1, 1, 40).astype(np.float32)
    module.numbers, module.whole = [1 - 0.01 * k for k in range(40)], tuple(range(1, 41))
    module.short, module.sizes = [1.0, 2.0, 3.0], [2, 3]
    module.best, module.count = -1e9, 0


def of_an_array(module: Any, batch: Any, i: int) -> T:
    m = module.array[module.global_step]
    module.log("m", m)
    return module.loss((batch[0] * m, batch[1])) * (1 - m + 0.1)


def by_a_sum(module: Any, batch: Any, i: int) -> T:
    step = module.trainer.num_training_batches * module.current_epoch + i
    return module.loss((batch[0] * module.array[step], batch[1])) * module.numbers[step] * module.single[-step - 1]


def of_a_tuple(module: Any, batch: Any, i: int) -> T:
    m = module.whole[min(module.global_step, 4)]
    module.log("m", float(m))
    return module.loss((batch[0] * m, batch[1]))


def momentum(module: Any, batch: Any, i: int) -> T:
    m = module.array[module.global_step]
    with torch.no_grad():
        for p in module.outer.parameters():
            p.data.mul_(m).add_((1 - m) * 0.1)
    return module.loss(batch)


def whole_tables(module: Any, batch: Any, i: int) -> T:
    w = module.array[i] + module.array.sum() + module.array[2:5].mean() + len(module.array) + max(module.numbers)
    return module.loss(batch) * (w + module.numbers[i] + torch.from_numpy(module.array).mean().item()) * 0.01


def by_a_random_number(module: Any, batch: Any, i: int) -> T:
    return module.loss((batch[0] * module.array[random.randrange(40)], batch[1])) * random.choice([0.1, 0.2, 0.3])


def by_a_random_number_below_another(module: Any, batch: Any, i: int) -> T:
    k, j = random.randint(0, i), np.random.randint(i + 1)
    module.seen.append((k, j))
    return module.loss((batch[0] * (k + 1), batch[1])) * (j + 1)


def stored(module: Any, batch: Any, i: int) -> T:
    module.current, module.alias = module.array[i], module.array
    assert type(module.alias) is np.ndarray
    module.seen.append(float(module.current))
    return module.loss((batch[0] * module.current, batch[1]))


def annealed(module: Any, batch: Any, i: int) -> T:
    w, v = min(1.0, module.global_step / 4), max(min(1, module.global_step / 3), 0.25)
    module.log_dict({"w": w, "v": v, "c": np.clip(module.global_step / 5, 0.1, 0.8)})
    return module.loss(batch) * (w + v)


def a_cosine_that_ends(module: Any, batch: Any, i: int) -> T:
    scale = 0.5 * (1 + math.cos(math.pi * min(module.global_step, 4) / 4)) + max([0.1, 0.02 * i])
    module.log("scale", scale)
    return module.loss((batch[0] * scale, batch[1]))


def best_of_values(module: Any, batch: Any, i: int) -> T:
    loss = module.loss(batch)
    module.best = max(module.best, -loss.item())
    module.log("highest", max([loss.item(), 1.0, 0.9]))
    return loss * min(max(loss.item(), 0.5), 1.0)


def not_a_number(module: Any, batch: Any, i: int) -> T:
    loss = module.loss(batch)
    nan = (loss * float("nan")).item()
    module.log_dict({"a": max(nan, 1.0), "b": max(1.0, nan), "c": min(nan, 1.0)})
    return loss


@pytest.mark.parametrize(
    "body",
    [
        of_an_array, by_a_sum, of_a_tuple, momentum, whole_tables, by_a_random_number, by_a_random_number_below_another, stored,
        annealed, a_cosine_that_ends, best_of_values, not_a_number,
    ],
)  # fmt: skip
def test_one_program_for_all_numbers(body: Body) -> None:
    module = beside_lightning(
        {"training_step": body}, lambda module: plain([module.seen, module.best, module.array]), prepare=_prepare
    )
    made = [one.reason for one in module.trainer.compiles if one.is_new_executable]
    # the first step may leave what is new: an attribute, or a whole number that becomes another one
    assert len(made) <= (2 if body in (stored, best_of_values) else 1), made


def branches(module: Any, batch: Any, i: int) -> T:
    w = module.array[module.global_step]
    return module.loss(batch) * w if w > 0.15 else module.loss((batch[0] * 2, batch[1]))


def sizes(module: Any, batch: Any, i: int) -> T:
    k = module.sizes[module.current_epoch]
    return module.loss((F.pad(batch[0][:, :k], (0, 4 - k)), batch[1]))


def beyond_the_end(module: Any, batch: Any, i: int) -> T:
    w = module.short[module.global_step] if module.global_step < 3 else module.array[module.global_step]
    return module.loss((batch[0] * w, batch[1]))


def caught(module: Any, batch: Any, i: int) -> T:
    try:
        w = module.short[module.global_step]
    except IndexError:
        w = 0.5
    return module.loss((batch[0] * w, batch[1]))


def appended_to(module: Any, batch: Any, i: int) -> T:
    w = module.short[i % 2]
    module.short.append(float(i))
    return module.loss((batch[0] * w, batch[1]))


def written_to(module: Any, batch: Any, i: int) -> T:
    w = module.numbers[i]
    module.numbers[i] = w * 0.5
    return module.loss((batch[0] * w, batch[1]))


@pytest.mark.parametrize("body", [branches, sizes, beyond_the_end, caught, appended_to, written_to])
def test_equal_with_several_programs(body: Body) -> None:
    beside_lightning({"training_step": body}, lambda module: plain([module.short, module.numbers]), prepare=_prepare)


def test_tables_that_change_between_steps() -> None:
    def change(module: Any, outputs: Any, batch: Any, i: int) -> None:
        if i == 0:
            module.array = module.array * 0.5
        if i == 1:
            module.array[2], module.numbers[2] = 0.9, 0.123

    def step(module: Any, batch: Any, i: int) -> T:
        return module.loss((batch[0] * module.array[i], batch[1])) * module.numbers[i]

    methods = {"training_step": step, "on_train_batch_end": change}
    beside_lightning(methods, lambda module: plain([module.array, module.numbers]), prepare=_prepare)


def test_past_the_end_of_a_table_is_an_error_on_its_line() -> None:
    def step(module: Any, batch: Any, i: int) -> T:
        return module.loss(batch) * module.short[module.global_step]

    module = module_of(systolic, {"training_step": step}, _prepare)
    with pytest.raises(IndexError, match="list index out of range"):
        trainer_of(systolic).fit(module, loader(96, 1))
    assert module.trainer.global_step == 3


def of_an_epoch(module: Any, batch: Any, i: int) -> T:
    return module.loss(batch) * {epoch: 0.1 + 0.1 * epoch for epoch in range(9)}[module.current_epoch]


def test_a_program_now_and_then_reaches_no_limit() -> None:
    module = module_of(systolic, {"training_step": of_an_epoch}, _prepare)
    run = trainer_of(systolic, max_epochs=6, recompile_limit=2, advice=False)
    run.fit(module, loader(160, 1, 2))
    made = [one.reason for one in run.compiles if one.is_new_executable]
    assert len(made) == 6
    assert all("a number decides otherwise at" in reason and "in of_an_epoch" in reason for reason in made[1:])


def test_a_program_in_every_step_is_an_error_that_names_the_line() -> None:
    def step(module: Any, batch: Any, i: int) -> T:
        return module.loss(batch) * {k: float(k) for k in range(99)}[i]

    module = module_of(systolic, {"training_step": step}, _prepare)
    with pytest.raises(
        systolic.RecompileLimitError, match=r"(?s)decides otherwise at .*test_lookups.py.*in step.*places in lists"
    ):
        trainer_of(systolic, recompile_limit=2, advice=False).fit(module, loader(96, 1))
