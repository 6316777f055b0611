"""Steps that draw from random generators of their own: each step draws what it draws under Lightning."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from beside_lightning import beside_lightning, loader, module_of, plain, trainer_of
from torch import nn

import systolic

T = torch.Tensor
Body = Callable[[Any, Any, int], T]
"""From a module, a batch and its number to the loss."""

OF_THE_FILE = np.random.RandomState(5)


class Settings:
    rng = random.Random(4)


class Environment:
    """What an agent acts in: it has a generator, and its state is numbers."""

    def __init__(self) -> None:
        self.rng = np.random.RandomState(1)
        self.position = 0.0
        self.count = 0

    def step(self, action: int) -> tuple[float, bool]:
        self.position = 0.9 * self.position + action + self.rng.randn() * 0.1
        self.count += 1
        return -abs(self.position), self.count % 3 == 0


class Noise(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rng = np.random.default_rng(1)

    def forward(self, x: T) -> T:
        return x * self.rng.uniform(0.5, 1.5)


def _prepare(module: Any) -> None:
    module.legacy, module.generator, module.python = np.random.RandomState(0), np.random.default_rng(0), random.Random(0)
    module.torch_generator = torch.Generator().manual_seed(0)
    module.environment, module.noise = Environment(), Noise()
    module.kept, module.several = module.generator.random, {"uniform": [module.python.uniform]}
    module.total = 0.0
    OF_THE_FILE.seed(5)
    Settings.rng.seed(4)


def by_classes(module: Any, batch: Any, i: int) -> T:
    return module.loss(batch) * (1 + module.legacy.rand() + module.generator.normal() + module.python.random())


def added_up(module: Any, batch: Any, i: int) -> T:
    module.total = module.total + module.legacy.randn()
    module.log("total", module.total)
    return module.loss(batch)


def in_an_environment(module: Any, batch: Any, i: int) -> T:
    action = module(batch[0])[0].argmax().item()
    reward, done = module.environment.step(action)
    module.seen.append((reward, done))
    return module.loss(batch) * (1 + 0.1 * reward)


def explored(module: Any, batch: Any, i: int) -> T:
    if module.legacy.rand() < 0.5:
        action = module.legacy.randint(3)
    else:
        action = torch.argmax(module(batch[0])[0]).item()
    module.seen.append(module.environment.step(action)[0])
    return module.loss(batch)


def of_file_and_class(module: Any, batch: Any, i: int) -> T:
    return module.loss(batch) * (1 + OF_THE_FILE.rand() + Settings.rng.random())


def of_a_submodule(module: Any, batch: Any, i: int) -> T:
    return module.loss((module.noise(batch[0]), batch[1]))


def by_methods_that_are_kept(module: Any, batch: Any, i: int) -> T:
    if not hasattr(module, "draw"):
        module.draw = module.legacy.uniform
    return module.loss(batch) * (1 + module.kept() + module.several["uniform"][0](0, 1) + module.draw(1, 2))


def mixed_up(module: Any, batch: Any, i: int) -> T:
    share = module.generator.beta(0.4, 0.4)
    other = torch.from_numpy(module.generator.permutation(len(batch[0])))
    x = share * batch[0] + (1 - share) * batch[0][other]
    return share * module.loss((x, batch[1])) + (1 - share) * module.loss((x, batch[1][other]))


def by_each_other(module: Any, batch: Any, i: int) -> T:
    size = module.python.randint(1, 3)
    place = module.python.randint(0, 4 - size)
    factor = module.python.choice([0.1, 0.2, 0.3]) + module.generator.integers(0, size + i)
    x = batch[0].clone()
    x[:, place : place + size] = 0
    return module.loss((x, batch[1])) * (1 + factor)


def shuffled(module: Any, batch: Any, i: int) -> T:
    parts, numbers = [batch[0], batch[0] * 2, batch[0] * 3], [1.0, 2.0, 3.0]
    module.python.shuffle(parts)
    random.Random(3).shuffle(numbers)
    module.legacy.shuffle(numbers)
    return module.loss((parts[0] + 0.1 * parts[1], batch[1])) * numbers[0]


def ways(module: Any, batch: Any, i: int) -> T:
    if module.generator.random() < 0.5:
        return module.loss(batch)
    return module.loss(batch) * 2


def by_torch(module: Any, batch: Any, i: int) -> T:
    generator = module.torch_generator
    order = torch.randperm(len(batch[0]), generator=generator)
    noise = torch.randn(batch[0].shape, generator=generator) + torch.empty(4).uniform_(-1, 1, generator=generator)
    return module.loss((batch[0][order] + noise, batch[1][order])) * torch.randint(1, 3, (1,), generator=generator)


def made_in_the_step(module: Any, batch: Any, i: int) -> T:
    fixed = torch.Generator(device=module.device).manual_seed(3)
    assert isinstance(fixed, torch.Generator)
    assert isinstance(module.torch_generator, torch.Generator)
    numbered = torch.Generator()
    numbered.manual_seed(module.global_step + 7)
    noise = torch.randn(4, generator=fixed) + torch.rand(4, generator=numbered) + torch.rand(4, generator=fixed)
    return module.loss((batch[0] + noise + np.random.default_rng(0).random(), batch[1]))


def at_times(module: Any, batch: Any, i: int) -> T:
    noise = torch.randn(4, generator=module.torch_generator) if i % 2 == 0 else 0
    return module.loss((batch[0] + noise, batch[1]))


BODIES = [
    by_classes, added_up, in_an_environment, explored, of_file_and_class, of_a_submodule, by_methods_that_are_kept, mixed_up,
    by_each_other, shuffled, ways, by_torch, made_in_the_step, at_times,
]  # fmt: skip


@pytest.mark.parametrize("body", BODIES)
def test_draws_what_it_draws_under_lightning(body: Body) -> None:
    def held(module: Any) -> Any:
        numbers = [module.legacy.rand(), module.generator.random(), module.python.random(), module.noise.rng.random()]
        numbers += [module.environment.rng.rand(), OF_THE_FILE.rand(), Settings.rng.random()]
        of_torch = torch.rand(1, generator=module.torch_generator)
        return plain([module.seen, module.total, numbers, of_torch]), type(module.legacy), type(module.kept)

    module = beside_lightning({"training_step": body}, held, prepare=_prepare)
    made = [one.reason for one in module.trainer.compiles if one.is_new_executable]
    # one for each way, and one more where what the first step leaves is new
    assert len(made) <= (3 if body in (explored, by_each_other) else 2), made


@pytest.mark.parametrize("body", [by_classes, mixed_up, by_torch])
def test_on_several_cores(body: Body) -> None:
    beside_lightning({"training_step": body}, lambda module: plain(module.seen), prepare=_prepare, devices=4)


@pytest.mark.parametrize("body", [by_classes, by_torch, ways])
def test_in_validation(body: Body) -> None:
    def validation_step(module: Any, batch: Any, i: int) -> None:
        module.log("loss", body(module, batch, i))

    beside_lightning({"validation_step": validation_step}, lambda module: plain(module.seen), prepare=_prepare)


def seeded(module: Any, batch: Any, i: int) -> T:
    module.torch_generator.manual_seed(i + 1)
    return module.loss(batch) * torch.rand(1, generator=module.torch_generator)


def seeded_python(module: Any, batch: Any, i: int) -> T:
    module.python.seed(i)
    return module.loss(batch) * module.python.random()


def an_array_in_place(module: Any, batch: Any, i: int) -> T:
    order = np.arange(4)
    module.generator.shuffle(order)
    return module.loss((batch[0][:, order], batch[1]))


def objects(module: Any, batch: Any, i: int) -> T:
    names = module.python.sample(["inner", "outer"], 2)
    return module.loss(batch) * len(names[0])


@pytest.mark.parametrize("body", [seeded, seeded_python, an_array_in_place, objects])
def test_what_cannot_be_drawn_again_is_refused(body: Body) -> None:
    module = module_of(systolic, {"training_step": body}, _prepare)
    before = module.torch_generator.get_state(), module.python.getstate()
    with pytest.raises(systolic.HiddenRandomnessError, match=r"cannot be repeated before every step"):
        trainer_of(systolic).fit(module, loader(32, 1))
    assert torch.equal(module.torch_generator.get_state(), before[0])
    assert module.python.getstate() == before[1]
    assert type(module.legacy) is np.random.RandomState


def test_another_thread_draws_meanwhile() -> None:
    module = module_of(systolic, {"training_step": by_classes}, _prepare)
    drawn: list[float] = []
    shared, stop = np.random.default_rng(7), threading.Event()
    module.shared = shared

    def draw() -> None:
        while not stop.is_set():
            drawn.append(module.shared.random())

    thread = threading.Thread(target=draw)
    thread.start()
    try:
        trainer_of(systolic).fit(module, loader(32, 1))
    finally:
        stop.set()
        thread.join()
    assert module.shared is shared
    again = np.random.default_rng(7)
    assert drawn == [again.random() for _ in drawn]
    assert F.mse_loss(torch.tensor(drawn).mean(), torch.tensor(0.5)) < 0.1


def arrays_by_the_step(module: Any, batch: Any, i: int) -> T:
    deviation = 0.1 / (1 + module.global_step) ** 0.55
    noise = np.random.normal(0, deviation, (16, 4)) + module.generator.normal(
        loc=deviation * 2, scale=1 + 0.1 * i, size=(16, 4)
    )
    sizes = (
        len(module.legacy.permutation(i + 2)) + np.random.choice(i + 3, 2).sum() + module.legacy.randint(0, i + 1, (2,)).sum()
    )
    return module.loss((batch[0] + torch.from_numpy(noise.astype(np.float32)), batch[1])) * (1 + 0.01 * torch.as_tensor(sizes))


def test_arrays_of_other_numbers_and_sizes_in_each_step() -> None:
    def prepare(module: Any) -> None:
        _prepare(module)
        np.random.seed(0)

    beside_lightning({"training_step": arrays_by_the_step}, lambda module: None, prepare=prepare)
