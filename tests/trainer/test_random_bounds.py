"""Random integers between bounds that are values of the step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from beside_lightning import loader, module_of, trainer_of

import systolic

DRAWS: dict[str, Callable[[int, int], torch.Tensor]] = {
    "randint": lambda low, high: torch.randint(low, high, (40,)),
    "randint from zero": lambda low, high: torch.randint(high - low, (40,)) + low,
}


def _fitted(draw: Callable[[int, int], torch.Tensor], drawn: Callable[[Any], tuple[int, int]]) -> Any:
    def training_step(self: Any, batch: Any, i: int) -> torch.Tensor:
        low, high = drawn(batch)
        found = draw(low, high)
        self.seen.append((low, high, found))
        return self.loss(batch) * (1 + found.float().mean())

    module = module_of(systolic, {"training_step": training_step}, lambda module: None)
    trainer_of(systolic, max_epochs=10).fit(module, loader(48, 1))
    return module


@pytest.mark.parametrize("name", DRAWS)
def test_numbers_are_between_the_bounds_of_their_step(name: str) -> None:
    def drawn(batch: Any) -> tuple[int, int]:
        low = int(torch.randint(-3, 1, (1,)).item())
        return low, low + int(torch.empty(1).uniform_(1, 5).item())

    module = _fitted(DRAWS[name], drawn)
    assert len(module.seen) == 30
    assert len({(int(low), int(high)) for low, high, _ in module.seen}) > 3
    for low, high, found in module.seen:
        assert set(found.long().tolist()) == set(range(int(low), int(high)))  # forty numbers meet all of at most four
    assert sum(one.is_new_executable for one in module.trainer.compiles) == 1


def test_bounds_without_numbers_between_them_are_an_error() -> None:
    with pytest.raises(IndexError, match="the width of the range"):
        _fitted(DRAWS["randint"], lambda batch: (5, int(batch[1].min()) + 5))
