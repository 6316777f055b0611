"""Run the step on devices that are here, to see how far a prediction is off."""

from __future__ import annotations

import copy
import statistics
import time
from typing import TYPE_CHECKING

import torch

from ...preflight import Measurement
from ...runtime import Placement, to_jax_array
from ._inspection import NUMBERS, ReadyStep, Subject, ready_step

if TYPE_CHECKING:
    from ...utilities._jax_internals import Device

_WARM_UP = 3
_GROUPS, _STEPS_PER_GROUP = 7, 5


def measure_step(subject: Subject, devices: list[Device], batch_size: int | None) -> Measurement:
    """Seconds a step, from one batch that stays on the devices; arguments as for `ready_step`.

    The steps are real ones; the module gets its values back afterwards.
    """
    model = subject.model
    values = copy.deepcopy(model.state_dict())
    try:
        with ready_step(subject, devices, batch_size, Placement) as ready:
            seconds = _timed(ready)
    finally:
        model.load_state_dict(values)
    return Measurement(
        platform=devices[0].platform,
        device_kind=devices[0].device_kind,
        devices=len(devices),
        step=seconds,
        steps=_GROUPS * _STEPS_PER_GROUP,
        ratio=None,
    )


def _timed(ready: ReadyStep) -> float:
    sample, runner, engine, placement = ready.sample, ready.runner, ready.engine, ready.run.placement
    assert placement is not None, "an inspected run compiles"
    loaded, structure, rebuild, _ = runner.arguments(sample.batch)
    pairs = zip(loaded, sample.leaves, strict=True)
    leaves = [placement.shard(to_jax_array(_enlarged(leaf, shape))) for leaf, (shape, _) in pairs]

    def run(steps: int) -> None:
        result = None
        for _ in range(steps):
            result = engine.run(leaves, structure, rebuild, NUMBERS)
            if runner.starves:
                runner.pace(result)
        assert result is not None
        result.wait()  # host sync: the clock is read next

    run(_WARM_UP)
    groups = []
    for _ in range(_GROUPS):
        started = time.perf_counter()
        run(_STEPS_PER_GROUP)
        groups.append((time.perf_counter() - started) / _STEPS_PER_GROUP)
    return statistics.median(groups)


def _enlarged(leaf: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """One core's samples again and again, as many as all cores take."""
    if tuple(leaf.shape) == shape:
        return leaf
    times = -(-shape[0] // leaf.shape[0])
    return leaf.repeat(times, *[1] * (leaf.ndim - 1))[: shape[0]]
