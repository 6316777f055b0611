"""A clock that a compiled step reads would stand still without a word."""

from __future__ import annotations

import time
import warnings

import torch

import systolic


def test_a_clock_in_a_step_is_told_once_with_its_line() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        began = time.perf_counter()
        y = x.sin()
        return y * 0 + (time.perf_counter() - began)

    compiled = systolic.jit(step)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for size in (2, 2, 3):
            compiled(torch.ones(size))
    texts = [str(warning.message) for warning in said]
    first = step.__code__.co_firstlineno
    assert [text.partition(": time")[0] for text in texts] == [f"{__file__}:{first + line}" for line in (1, 3)], texts
    assert all('Trainer(profiler="xla")' in text for text in texts)
    assert [warning.filename for warning in said] == [__file__] * 2


def test_clocks_outside_of_steps_and_of_packages_are_not() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        torch.utils.data.get_worker_info()
        return x.cos()

    original = time.time
    before = time.time()
    systolic.jit(step)(torch.ones(2))
    assert time.time() >= before
    assert time.time is original
