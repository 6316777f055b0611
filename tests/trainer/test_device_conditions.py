"""Conditions and whole numbers of the devices where Python wants its own: fit ends where Lightning's does."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from test_host_conditions import require_as_lightning

T = torch.Tensor


def options(module: Any, x: T, i: int) -> T:
    loss = module(x)
    high = loss.item() > 0.4
    ordered = module.inner(x).sort(0, descending=high).values * torch.arange(8.0)
    chosen = torch.where(torch.tensor(high), loss, loss * 2) + x.mean(0, keepdim=high).sum()
    return chosen + ordered.square().mean() * 1e-3 + module.outer.bias.sum() * float(high) * (high ^ (i > 0))


def looked_up(module: Any, x: T, i: int) -> T:
    loss = module(x)
    return loss * [1.0, 0.5][loss.item() > 0.4] + loss * {True: 0.5, False: 1.0}[loss.item() > 0.2]


def modes(module: Any, x: T, i: int) -> T:
    loss = module(x)
    module.norm.train(loss.item() > 0.4)
    module.inner.requires_grad_(loss.item() > 0.1)
    return loss


def kept(module: Any, x: T, i: int) -> T:
    loss = module(x)
    module.log("high", loss.item() > 0.4)
    module.count = getattr(module, "count", 0) + (loss.item() > 0.4)
    module.note = f"{loss.item() > 0.4}"
    return loss


def rounded(module: Any, x: T, i: int) -> T:
    loss = module(x)
    return loss * (math.floor(loss.item() * 4) + math.ceil(loss.item()) + math.trunc(loss.item() * 3) + round(loss.item(), 1))


def computed_with(module: Any, x: T, i: int) -> T:
    place = int(x[:, 0].argmax())
    quotient, rest = divmod(place, 3)
    root = float(np.sqrt(place)) + math.sqrt(place) + math.log(place + 1)
    h = module.inner(x).clone()
    h[[0, place]] = h[[place, 0]]
    window = torch.cat([h[:place], h[place + 1 :]])
    return module(x) * (quotient + rest + root + 0.9**place + (place & 3) + min(place, 3)) * 0.1 + window.square().mean()


BODIES = {body.__name__: body for body in (options, looked_up, modes, kept, rounded, computed_with)}


@pytest.mark.thin(2)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", BODIES)
def test_it_is_what_python_wants(name: str) -> None:
    require_as_lightning(BODIES[name], rtol=1e-4, atol=1e-5)
