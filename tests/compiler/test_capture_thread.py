"""What other threads do while a step is captured is not seen by it, and what capture changes is not seen by them."""

from __future__ import annotations

import copy
import math
import pickle
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from random import random as imported_random
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.random import rand as imported_rand
from torch import nn

import systolic
from systolic.compiler import HiddenRandomnessError


@contextmanager
def in_background(work: Callable[[], Any]) -> Iterator[list[Any]]:
    """Another thread calls `work` again and again, until the block ends; what it returned, or raised."""
    stop, results = threading.Event(), []

    def repeat() -> None:
        while not stop.is_set():
            try:
                results.append(work())
            except Exception as error:
                results.append(error)
                return

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield results
    finally:
        stop.set()
        thread.join()


def seen_during_capture(work: Callable[[], Any]) -> tuple[list[Any], list[Any]]:
    """What `work` gives in another thread before a capture, and what it gives there in the middle of one."""
    outside = [work()]
    inside: list[Any] = []

    def step(x: torch.Tensor) -> torch.Tensor:
        thread = threading.Thread(target=lambda: inside.append(work()))
        thread.start()
        thread.join()
        return x * 2

    function = systolic.jit(step)
    torch.testing.assert_close(function(torch.ones(3)), torch.full((3,), 2.0))
    assert function.compile_count == 1
    return outside, inside


def attention_like_math() -> float:
    torch.manual_seed(3)
    q, k, v = torch.randn(3, 1, 2, 4, 8).unbind()
    return F.scaled_dot_product_attention(q, k, v).sum().item()


def recurrent() -> float:
    torch.manual_seed(3)
    return nn.LSTM(3, 4)(torch.randn(5, 2, 3))[0].sum().item()


def packed() -> float:
    torch.manual_seed(3)
    sequence = nn.utils.rnn.pack_padded_sequence(torch.randn(5, 2, 3), torch.tensor([5, 3]))
    return nn.GRU(3, 4)(sequence)[0].data.sum().item()


def isolated_draws() -> float:
    with torch.random.fork_rng():
        torch.manual_seed(5)
        state = torch.get_rng_state()
        first = torch.rand(2)
        torch.set_rng_state(state)
        assert torch.equal(first, torch.rand(2))
        return first.sum().item()


def an_optimizer_step() -> list[Any]:
    torch.manual_seed(3)
    layer = nn.Linear(2, 2)
    optimizer = torch.optim.Adam(layer.parameters())
    layer(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    return [layer.weight.sum().item(), torch.compiler.is_compiling(), optimizer.state[layer.weight]["step"].item()]


def an_encoder() -> float:
    torch.manual_seed(3)
    return nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()(torch.randn(2, 3, 8)).sum().item()


def losses() -> list[Any]:
    torch.manual_seed(3)
    logits = torch.randn(6, 2, 5).log_softmax(-1)
    lengths = torch.tensor([6, 6])
    ctc = F.ctc_loss(logits, torch.tensor([[1, 2], [3, 4]]), lengths, torch.tensor([2, 2])).item()
    with pytest.raises(ValueError, match="negative"):
        F.gaussian_nll_loss(torch.zeros(2), torch.zeros(2), torch.tensor([-1.0, 1.0]))
    return [ctc, torch.backends.mha.get_fastpath_enabled(), repr(torch.ones(2))]


def adafactor() -> float:
    torch.manual_seed(3)
    layer = nn.Linear(2, 2)
    layer(torch.ones(1, 2)).sum().backward()
    torch.optim.Adafactor(layer.parameters()).step()
    return layer.weight.sum().item()


@pytest.mark.parametrize(
    "work",
    [attention_like_math, recurrent, packed, isolated_draws, an_optimizer_step, an_encoder, losses, adafactor],
)
def test_another_thread_meets_pytorch_as_it_is(work: Callable[[], Any]) -> None:
    outside, inside = seen_during_capture(work)
    assert inside == outside


DRAWS: list[Callable[[], Any]] = [
    random.random,
    lambda: random.gauss(0, 1),
    lambda: random.choice([1, 2, 3]),
    lambda: random.seed(3),
    lambda: random.setstate(random.getstate()),
    lambda: imported_random(),
    np.random.rand,
    lambda: np.random.permutation(4),
    lambda: np.random.seed(3),
    lambda: imported_rand(2),
    lambda: np.random.set_state(np.random.get_state()),
    lambda: torch.manual_seed(1),
    lambda: torch.rand(2),
]


@pytest.mark.parametrize("draw", DRAWS)
def test_draws_of_another_thread_are_not_the_steps(draw: Callable[[], Any]) -> None:
    seen_during_capture(draw)


@pytest.mark.parametrize(
    "draw",
    [
        lambda: random.shuffle(["a", "b", "c"]),
        lambda: random.sample(["a", "b", "c"], 2),
        lambda: np.random.choice(["a", "b", "c"]),
        lambda: imported_random(),
        lambda: np.random.bytes(1),
        lambda: np.random.shuffle(np.arange(4)),
        lambda: imported_rand(2),
    ],
)
def test_draws_of_the_step_are_refused_while_another_thread_draws_too(draw: Callable[[], Any]) -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        draw()
        return x * 2

    with in_background(lambda: (random.random(), np.random.rand())) as results:
        with pytest.raises(HiddenRandomnessError, match="test_capture_thread.py:"):
            systolic.jit(step)(torch.ones(3))
    assert not any(isinstance(result, Exception) for result in results)


def test_a_method_taken_from_the_generator_long_ago_is_found_too() -> None:
    held = {"draw": random.random}

    def step(x: torch.Tensor) -> torch.Tensor:
        return x * held["draw"]()

    with pytest.raises(HiddenRandomnessError, match=r"test_capture_thread.py:\d+ in step"):
        systolic.jit(step)(torch.ones(3))


def test_the_generators_are_as_before_after_a_capture() -> None:
    functions = random.random, random.uniform, np.random.rand, imported_random, imported_rand, torch.get_rng_state
    random.seed(1)
    expected = [random.random(), random.gauss(0, 1), random.randint(0, 99)]
    random.seed(1)
    systolic.jit(lambda x: x * 3)(torch.ones(2))
    assert functions == (random.random, random.uniform, np.random.rand, imported_random, imported_rand, torch.get_rng_state)
    assert [random.random(), random.gauss(0, 1), random.randint(0, 99)] == expected
    assert vars(random.random.__self__).keys() == {"gauss_next"}


def test_modules_that_run_in_another_thread_give_no_names_to_the_steps_ops() -> None:
    model, other = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.Sequential(nn.Linear(2, 2))

    def step(x: torch.Tensor) -> torch.Tensor:
        return model(x).sum()

    alone = systolic.jit(step)
    alone(torch.ones(3, 4))
    alone.release()
    beside = systolic.jit(step)
    with in_background(lambda: other(torch.ones(1, 2)).sum().item()) as results:
        beside(torch.ones(3, 4))
    assert results
    assert all(math.isfinite(value) for value in results)
    scopes = [[(node.name, node.meta.get("scope")) for node in function.graph().nodes] for function in (alone, beside)]
    assert scopes[0] == scopes[1]


def test_two_threads_that_capture_at_once_do_not_disturb_each_other() -> None:
    weights = nn.Linear(3, 3).state_dict()

    def trained(scale: float) -> float:
        layer = nn.Linear(3, 3)
        layer.load_state_dict(weights)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)

        @systolic.jit
        def step(x: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = (layer(x) * scale).square().sum()
            loss.backward()
            optimizer.step()
            return loss

        x = torch.ones(2, 3)
        return [step(x).item() for _ in range(3)][-1]

    scales = (0.5, 0.25)
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(trained, scales))
    assert together == [trained(scale) for scale in scales]


_WEIGHTS = {min: 2.0, max: 3.0, math.sqrt: 5.0, open: 7.0, next: 11.0}


def test_functions_in_c_are_found_in_tables_while_a_step_is_captured() -> None:
    highest, kept = max, []

    def step(x: torch.Tensor) -> torch.Tensor:
        assert [one == highest for one in (max, min)] == [True, False]
        assert highest in (min, max)
        assert max.__name__ == "max"
        kept.extend(copy.deepcopy([max, math.sqrt]))
        kept.append(pickle.loads(pickle.dumps(max)))
        return x * math.prod(_WEIGHTS[f] for f in (min, max, math.sqrt, open, next)) + {max: 1.0}[highest]

    torch.testing.assert_close(systolic.jit(step)(torch.ones(3)), torch.full((3,), 2311.0))
    assert [one(1, 4) if one == max else one(4) for one in kept] == [4, 2.0, 4]
