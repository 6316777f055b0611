"""A step that nobody has any more takes its programs with it, however often it was traced, and whatever ended a trace.

Programs that stay are not only memory: each has some dozen mappings of it, of which Linux gives a process 65,530 by default. A
search that trains a thousand models in one process would end with a segmentation fault.
"""

from __future__ import annotations

import contextlib
import gc
import random
import weakref
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import systolic
from systolic.compiler import JitFunction

T = torch.Tensor


def tail(v: T, y: T) -> T:
    return v[int((y == 0).sum()) :].sum()


def branch(v: T, y: T) -> T:
    return v.sum() if (y == 0).sum() > 5 else v.mean()


def mask(v: T, y: T) -> T:
    return v[y > 0].sum()


def item(v: T, y: T) -> T:
    return v.mean() * float((y == 0).sum().item())


def draw(v: T, y: T) -> T:
    return v[: random.randint(1, 8)].sum()


def drawn_array(v: T, y: T) -> T:
    return v[torch.from_numpy(np.random.permutation(16)[:4])].sum()


def on_the_host(v: T, y: T) -> T:
    return v.sum() * float(np.unique(y.numpy()).size)


def mistake(v: T, y: T) -> T:
    raise IndexError(f"the user's own: {int((y == 0).sum())}")


def refused(v: T, y: T) -> T:
    return v.sum() * hash(float(v.detach().sum()))


USES: dict[str, Callable[[T, T], T]] = {
    one.__name__: one for one in (tail, branch, mask, item, draw, drawn_array, on_the_host, mistake, refused)
}


def run(use: Callable[[T, T], T]) -> weakref.ref[JitFunction]:
    """Four steps, or as many as there are before an error; a reference to what ran them."""
    model = nn.Linear(4, 3, dtype=torch.float64)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    @systolic.jit
    def step(x: T, y: T) -> T:
        loss = use(F.cross_entropy(model(x), y, reduction="none"), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        return loss.detach()

    fails = pytest.raises((IndexError, systolic.CaptureError)) if use in (mistake, refused) else contextlib.nullcontext()
    with fails:
        for _ in range(4):
            step(torch.randn(16, 4, dtype=torch.float64), torch.randint(0, 3, (16,)))
    del fails
    return weakref.ref(step)


@pytest.mark.filterwarnings("ignore:.*decides otherwise")
@pytest.mark.parametrize("name", USES)
def test_nothing_stays(name: str) -> None:
    left = run(USES[name])
    gc.collect()
    assert left() is None
