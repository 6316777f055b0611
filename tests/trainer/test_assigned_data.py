"""Teachers and clamped critics as people write them: `p.data = ...` in training_step trains as under Lightning."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch.nn import functional as F
from trainer.three_ways import compare, regression


def test_a_teacher_that_follows_by_assigned_data() -> None:
    def build(base: Any) -> Any:
        student = regression(base)

        class SelfDistilled(student):
            def __init__(self) -> None:
                super().__init__()
                self.teacher = copy.deepcopy(self.first)
                self.teacher.requires_grad_(False)

            def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
                for t, s in zip(self.teacher.parameters(), self.first.parameters(), strict=True):
                    t.data = 0.9 * t.data + 0.1 * s.data
                target = self.second(torch.tanh(self.teacher(batch[0])))
                return self.loss(batch) + F.mse_loss(self(batch[0]), target.detach())

        return SelfDistilled

    outcome = compare(build)
    assert not torch.equal(outcome.parameters["teacher.weight"], outcome.parameters["first.weight"])


def test_a_critic_whose_weights_are_clamped_by_assigned_data() -> None:
    def training_step(self: Any, batch: Any, batch_idx: int) -> torch.Tensor:
        for p in self.parameters():
            p.data = p.data.clamp(-0.1, 0.1)
        return self.loss(batch)

    compare(lambda base: regression(base, training_step=training_step))
