"""Boxes, windows and lengths that a step draws, or counts up: one program for all of them, equal to Lightning."""

from __future__ import annotations

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


def image(batch: Any) -> T:
    """Each row as an image of six by six."""
    return (batch[0][:, :, None] * torch.arange(1.0, 10.0)).reshape(-1, 1, 6, 6)


def loss(module: Any, x: T, y: T) -> T:
    return F.cross_entropy(module(F.adaptive_avg_pool2d(x, 2).flatten(1)), y)


def _prepare(module: Any) -> None:
    random.seed(0)
    np.random.seed(0)


def cutmix(module: Any, batch: Any, i: int) -> T:
    x, y = image(batch), batch[1]
    if np.random.rand(1) >= 0.7:
        return loss(module, x, y)
    lam, order = np.random.beta(1.0, 1.0), torch.as_tensor(np.random.permutation(len(x)))
    cut = int(6 * np.sqrt(1.0 - lam))
    cx, cy = np.random.randint(6), np.random.randint(6)
    x1, y1 = np.clip(cx - cut // 2, 0, 6), np.clip(cy - cut // 2, 0, 6)
    x2, y2 = np.clip(cx + cut // 2, 0, 6), np.clip(cy + cut // 2, 0, 6)
    x[:, :, x1:x2, y1:y2] = x[order, :, x1:x2, y1:y2]
    lam = 1 - ((x2 - x1) * (y2 - y1) / 36)
    return loss(module, x, y) * lam + loss(module, x, y[order]) * (1.0 - lam)


def cutout(module: Any, batch: Any, i: int) -> T:
    h, w = np.random.randint(6), np.random.randint(6)
    mask = torch.ones(6, 6)
    mask[np.clip(h - 1, 0, 6) : np.clip(h + 2, 0, 6), np.clip(w - 1, 0, 6) : np.clip(w + 2, 0, 6)] = 0.0
    return loss(module, image(batch) * mask, batch[1])


def masked_bands(module: Any, batch: Any, i: int) -> T:
    x = image(batch)[:, 0]
    for dim in (1, 2):
        width = int(np.random.uniform(low=0.0, high=3))
        start = random.randint(0, 6 - width)
        if dim == 1:
            x[:, start : start + width, :] = 0
        else:
            x[:, :, start : start + width] = 0
    return loss(module, x[:, None], batch[1])


def cropped(module: Any, batch: Any, i: int) -> T:
    p, q = random.randint(0, 2), random.randint(0, 2)
    return loss(module, image(batch)[:, :, p : p + 4, q : q + 4], batch[1])


def beginnings(module: Any, batch: Any, i: int) -> T:
    x = image(batch).flatten(2)
    n = np.random.randint(10, 37)
    return module.loss(batch) + x[:, :, :n].mean() * module.outer.bias.sum()


def split_in_two(module: Any, batch: Any, i: int) -> T:
    x = image(batch).flatten(1) * module.outer.weight.sum()
    c = random.randrange(5, 30)
    return (x[:, :c].mean(1) - x[:, c:].mean(1)).pow(2).mean()


def rows_of_each_other(module: Any, batch: Any, i: int) -> T:
    x = image(batch)
    k, j = random.randrange(len(x)), np.random.randint(len(x))
    x[k] = x[j] * 0.5 + x[k] * 0.5
    return loss(module, x, batch[1])


@pytest.mark.thin(3)
@pytest.mark.parametrize("devices", [1, 4])
@pytest.mark.parametrize(
    ("body", "programs"),
    [
        (cutmix, 4), (cutout, 3), (masked_bands, 4), (cropped, 1), (beginnings, 2), (split_in_two, 2), (rows_of_each_other, 1),
    ],
)  # fmt: skip
def test_what_is_drawn_has_no_program_for_each_size(body: Body, programs: int, devices: int) -> None:
    module = beside_lightning({"training_step": body}, lambda module: None, prepare=_prepare, devices=devices, epochs=6)
    made = [one.reason for one in module.trainer.compiles if one.is_new_executable]
    assert len(made) <= programs, made


def growing(module: Any, batch: Any, i: int) -> T:
    return loss(module, image(batch)[:, :, :, : min(2 + module.global_step // 2, 6)], batch[1])


def growing_in_place(module: Any, batch: Any, i: int) -> T:
    x = image(batch)
    k = min(2 + i, 6)
    x[:, :, :, :k] = x[:, :, :, :k] * 2
    return loss(module, x, batch[1])


def from_a_number_on(module: Any, batch: Any, i: int) -> T:
    x = image(batch)
    x[:, :, i % 4 :] *= 2
    x[:, :, i % 4 : i % 4 + 2] += 1
    return loss(module, x, batch[1])


def every_other(module: Any, batch: Any, i: int) -> T:
    x = image(batch)
    x[:, :, i % 2 :: 2] = x[:, :, i % 2 :: 2] * 3
    return loss(module, x, batch[1])


def with_gradients(module: Any, batch: Any, i: int) -> T:
    hidden, k = module.inner(batch[0]), i % 3
    parts = [
        hidden[:, : k + 2] + hidden[:, -k - 2 :],
        hidden[:, 1 : k + 2],
        hidden[:, k + 1 :],
        hidden[:, -3 : k + 7],
        hidden[:, k::2],
    ]
    return sum((part.mean() ** 2 for part in parts), torch.zeros(()))


def sizes_of_ops(module: Any, batch: Any, i: int) -> T:
    hidden, k = module.inner(batch[0]), i % 3 + 1
    first, rest = hidden.split([k, 8 - k], 1)
    found = first.mean() - rest.square().mean() + hidden.topk(k)[0].mean() + F.pad(hidden, (k, 0))[:, :8].square().mean()
    made = torch.zeros(2, k) + hidden.new_full((2, k), float(i)) + module.norm.bias[:1, None].expand(2, k)
    return found * 0.1 + made.mean() + len(hidden.split(k, 1)) * module.outer.bias.sum()


def drawn_sizes_of_ops(module: Any, batch: Any, i: int) -> T:
    return sizes_of_ops(module, batch, random.randint(0, 2))


def placed(module: Any, batch: Any, i: int) -> T:
    hidden, k, j = module.inner(batch[0]), i % 3 + 1, random.randint(-6, 5)
    x = batch[0].clone()
    x[:, k - 4 : k - 2] *= 2
    x[:, i + 1 : i + 4] += 1
    found = hidden[:, -k - 3 : -k].mean() + hidden[:, k].mean() + hidden[:, -k - 1].mean() + hidden.narrow(1, k, 2).mean()
    return module.loss((x, batch[1])) + found + hidden[:, j].mean() + torch.roll(hidden, k, 1)[:, 0].mean()


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    "body",
    [growing, growing_in_place, from_a_number_on, every_other, with_gradients, sizes_of_ops, drawn_sizes_of_ops, placed],
)
def test_sizes_by_the_number_of_the_step(body: Body) -> None:
    beside_lightning({"training_step": body}, lambda module: None, prepare=_prepare)


def between_numbers_of_constants(self: Any, batch: Any, i: int) -> T:
    low, high = torch.linspace(0.1, 0.5, 2).tolist()
    first, last = (torch.arange(3) * 4).tolist()[1:]
    drawn = [
        int(16 * random.uniform(low, high)),
        random.randint(first, last),
        np.random.uniform(low, float(torch.eye(2).sum())),
    ]
    self.seen.append(drawn)
    return self.loss(batch) * (1 + sum(drawn))


def between_numbers_of_the_state(self: Any, batch: Any, i: int) -> T:
    low, high = self.norm.bias.detach()[:2].tolist()
    return self.loss(batch) * random.uniform(low, high)


def _prepare_both(module: Any) -> None:
    random.seed(0)
    np.random.seed(0)


def test_bounds_that_depend_on_no_input() -> None:
    methods = {"training_step": between_numbers_of_constants}
    module = beside_lightning(methods, lambda module: plain(module.seen), prepare=_prepare_both)
    assert sum(one.is_new_executable for one in module.trainer.compiles) == 1


def test_bounds_of_the_state_are_not_frozen() -> None:
    module = module_of(systolic, {"training_step": between_numbers_of_the_state}, _prepare_both)
    with pytest.raises(systolic.CaptureError, match=r"between_numbers_of_the_state: return .*random\.uniform"):
        trainer_of(systolic).fit(module, loader(48, 1))
