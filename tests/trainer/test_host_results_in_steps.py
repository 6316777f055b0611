"""Steps that compute with what functions of the host give, against Lightning."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from beside_lightning import Method, beside_lightning
from scipy.ndimage import distance_transform_edt

import systolic


def _distances(self: Any, batch: Any, i: int) -> torch.Tensor:
    """A loss that is weighted by how far each sample is from a wrong one."""
    out = self(batch[0])
    right = (out.argmax(1) == batch[1]).cpu().numpy()
    far = torch.from_numpy(distance_transform_edt(np.stack([right, ~right]))).float()
    self.log("far", far.mean())
    return (F.cross_entropy(out, batch[1], reduction="none") * (1 + far[0])).mean()


def _first_of_each(self: Any, batch: Any, i: int) -> torch.Tensor:
    _, places = np.unique(batch[1].numpy(), return_index=True)
    return self.loss([batch[0][places], batch[1][places]])


def _noted(self: Any, batch: Any, i: int) -> torch.Tensor:
    return self.loss(batch) * self.scale(batch[0].sum(), i)


def _scale(self: Any, total: torch.Tensor, i: int) -> float:
    self.seen.append((i, float(total)))
    return 1.5 if total > 0 else 0.5


def _cut_mix(self: Any, batch: Any, i: int) -> torch.Tensor:
    # a draw of the host decides, and a value does
    width = random.random()
    scale = self.scale(batch[0].sum() * width, i)
    return self.loss(batch) * scale if scale > 1 else self.loss([batch[0] * width, batch[1]])


def _both(self: Any, batch: Any, i: int, dataloader_idx: int = 0) -> None:
    self.log("far", float(np.interp(self(batch[0]).numpy().mean(), [-1.0, 1.0], [0.0, 3.0])) + self.scale(batch[0].sum(), i))


class _Agent:
    """Acts in an environment and keeps what it met; its state is no attribute of the module."""

    def __init__(self) -> None:
        self.random, self.place, self.count = np.random.default_rng(0), np.zeros(4, np.float32), 0
        self.memory: deque[tuple[Any, int, float]] = deque(maxlen=40)

    def play(self, module: Any) -> None:
        with torch.no_grad():
            values = module(torch.from_numpy(self.place)[None])[0]
        action = random.randrange(3) if random.random() < 0.3 else int(values.argmax())
        self.memory.append((self.place, action, float(-np.abs(self.place).sum())))
        self.place = (0.8 * self.place + action - 1 + self.random.normal(size=4)).astype(np.float32)
        self.count += 1
        if self.count % 7 == 0:
            self.place = np.zeros(4, np.float32)


def _met(self: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Play, and draw from what was met."""
    self.agent.play(self)
    self.played += 1
    places, actions, rewards = zip(*random.choices(self.agent.memory, k=8), strict=True)
    self.seen.append((self.played, sum(rewards)))
    return torch.tensor(np.stack(places)), torch.tensor(actions), torch.tensor(rewards)


def _of_what_was_met(self: Any, batch: Any, i: int) -> torch.Tensor:
    places, actions, rewards = self.met()
    if i % 2:  # two programs, and one more where the number of an epoch is even
        places = places * 0.9
    chosen = self(places).gather(1, actions[:, None])[:, 0]
    self.log("reward", rewards.mean())
    return F.smooth_l1_loss(chosen, rewards)


def _with_agent(module: Any) -> None:
    random.seed(3)
    module.agent, module.played = _Agent(), 0
    module.met = systolic.host(lambda: _met(module)) if isinstance(module, systolic.LightningModule) else lambda: _met(module)


def _with_scale(module: Any) -> None:
    random.seed(3)
    ours = isinstance(module, systolic.LightningModule)
    module.scale = (
        systolic.host(lambda total, i: _scale(module, total, i)) if ours else lambda total, i: _scale(module, total, i)
    )


STEPS: dict[str, dict[str, Method]] = {
    "of a library": {"training_step": _distances},
    "of NumPy's": {"training_step": _first_of_each},
    "with a state": {"training_step": _noted},
    "after a draw": {"training_step": _cut_mix},
    "in validation": {"validation_step": _both},
}


@pytest.mark.thin(3)
@pytest.mark.parametrize("devices", [1, 4])
@pytest.mark.parametrize("name", STEPS)
def test_it_equals_lightning(name: str, devices: int) -> None:
    beside_lightning(STEPS[name], lambda module: module.seen, prepare=_with_scale, devices=devices)


@pytest.mark.parametrize("devices", [1, 4])
def test_an_agent_plays_once_in_each_step(devices: int) -> None:
    """A trace needs what the function gives, and the step takes that: nobody plays, or draws, a second time."""
    beside_lightning(
        {"training_step": _of_what_was_met},
        lambda module: (module.seen, module.played, module.agent.count, list(module.agent.place), random.random()),
        prepare=_with_agent,
        devices=devices,
    )


def test_a_list_that_the_function_appends_to_is_no_reason_to_trace() -> None:
    module = beside_lightning(STEPS["with a state"], lambda module: module.seen, prepare=_with_scale)
    assert [one.reason for one in module.trainer.compiles if one.is_new_executable] == ["first call"]
    assert len(module.trainer.compiles) == 1
