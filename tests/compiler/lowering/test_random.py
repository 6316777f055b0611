"""Random ops: their distributions, and that every draw is a new one."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from compiler.lowering.op_check import check_op, lower_and_run

from systolic.compiler.lowering._bits import PAIRED, halves_suffice, keep_mask, keep_mask_by_row, mask_key

pytestmark = pytest.mark.thin(3)

aten = torch.ops.aten
N = 40_000

# name: function of a tensor of N zeros, expected mean, expected deviation, bounds
DRAWS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], float, float, float, float]] = {
    "rand": (lambda x: torch.rand(N), 0.5, 12**-0.5, 0, 1),
    "rand_like": (lambda x: torch.rand_like(x), 0.5, 12**-0.5, 0, 1),
    "rand_bfloat16": (lambda x: torch.rand(N, dtype=torch.bfloat16), 0.5, 12**-0.5, 0, 1),
    "rand_double": (lambda x: torch.rand(N, dtype=torch.float64), 0.5, 12**-0.5, 0, 1),
    "randn": (lambda x: torch.randn(N), 0, 1, -7, 7),
    "randn_like": (lambda x: torch.randn_like(x), 0, 1, -7, 7),
    "uniform": (lambda x: x.clone().uniform_(-2, 4), 1, 6 * 12**-0.5, -2, 4),
    "normal_": (lambda x: x.clone().normal_(3, 2), 3, 2, -11, 17),
    "normal_tensors": (lambda x: torch.normal(x + 3, x + 2), 3, 2, -11, 17),
    "normal_mean": (lambda x: torch.normal(x + 3, 2.0), 3, 2, -11, 17),
    "normal_std": (lambda x: torch.normal(3.0, x + 2), 3, 2, -11, 17),
    "normal_size": (lambda x: torch.normal(3.0, 2.0, (N,)), 3, 2, -11, 17),
    "bernoulli": (lambda x: torch.bernoulli(x + 0.3), 0.3, 0.21**0.5, 0, 1),
    "bernoulli_p": (lambda x: x.clone().bernoulli_(0.3), 0.3, 0.21**0.5, 0, 1),
    "bernoulli_tensor": (lambda x: x.clone().bernoulli_(x + 0.3), 0.3, 0.21**0.5, 0, 1),
    "bernoulli_int": (lambda x: x.long().bernoulli_(0.3), 0.3, 0.21**0.5, 0, 1),
    "exponential": (lambda x: x.clone().exponential_(2.0), 0.5, 0.5, 0, 50),
    "geometric": (lambda x: x.clone().geometric_(0.5), 2, 2**0.5, 1, 100),
    "log_normal": (lambda x: x.clone().log_normal_(0.0, 0.5), 1.1331, 0.6039, 0, 50),
    "poisson": (lambda x: torch.poisson(x + 4), 4, 2, 0, 40),
    "binomial": (lambda x: torch.binomial(x + 10, x + 0.3), 3, 2.1**0.5, 0, 10),
    "gamma": (lambda x: torch._standard_gamma(x + 4), 4, 2, 0, 60),
    "randint": (lambda x: torch.randint(-3, 5, (N,)), 0.5, (63 / 12) ** 0.5, -3, 4),
    "randint_high": (lambda x: torch.randint(8, (N,), dtype=torch.float32), 3.5, (63 / 12) ** 0.5, 0, 7),
    "randint_like": (lambda x: torch.randint_like(x, 8), 3.5, (63 / 12) ** 0.5, 0, 7),
    "randint_like_low": (lambda x: torch.randint_like(x, -3, 5), 0.5, (63 / 12) ** 0.5, -3, 4),
    "random_to": (lambda x: x.clone().random_(8), 3.5, (63 / 12) ** 0.5, 0, 7),
    "random_bool": (lambda x: x.bool().random_().float(), 0.5, 0.5, 0, 1),
    "random_bytes": (lambda x: x.to(torch.uint8).random_().float(), 127.5, (65535 / 12) ** 0.5, 0, 255),
    "dropout": (lambda x: F.dropout(x + 1, 0.25), 1, (1 / 3) ** 0.5, 0, 4 / 3 + 1e-6),
    "native_dropout": (lambda x: aten.native_dropout(x + 1, 0.25, True)[0], 1, (1 / 3) ** 0.5, 0, 4 / 3 + 1e-6),
    "multinomial": (lambda x: torch.multinomial(x[:3] + torch.arange(3), N, True), 5 / 3, (2 / 9) ** 0.5, 1, 2),
    "dirichlet": (lambda x: torch._sample_dirichlet(x.reshape(-1, 2) + 1)[:, 0], 0.5, 12**-0.5, 0, 1),
}


@pytest.mark.parametrize("case", DRAWS)
def test_distribution(case: str) -> None:
    function, mean, deviation, low, high = DRAWS[case]
    x = torch.zeros(N)
    (sample,) = lower_and_run(function, x)
    expected = function(x)
    assert sample.shape == tuple(expected.shape)
    values = sample.astype(np.float64)
    assert values.min() >= low
    assert values.max() <= high
    assert abs(values.mean() - mean) < 6 * deviation / len(values) ** 0.5 + 1e-2 * deviation
    assert abs(values.std() - deviation) < 0.05 * deviation


def test_cauchy() -> None:
    (sample,) = lower_and_run(lambda x: x.clone().cauchy_(2.0, 3.0), torch.zeros(N))
    quartiles = np.quantile(sample, [0.25, 0.5, 0.75])
    # six standard errors of a quartile: sqrt(0.25 * 0.75 / N) over the density there, 1 / (2 pi 3)
    np.testing.assert_allclose(quartiles, [-1, 2, 5], atol=0.25)


def test_two_draws_differ() -> None:
    first, second = lower_and_run(lambda x: (torch.rand(100), torch.rand(100)), torch.zeros(()))
    assert (first != second).mean() > 0.9


def test_permutation() -> None:
    (sample,) = lower_and_run(lambda x: torch.randperm(50), torch.zeros(()))
    assert sample.dtype == np.int64
    assert sorted(sample) == list(range(50))
    assert list(sample) != list(range(50))


def test_multinomial_without_replacement() -> None:
    weights = torch.tensor([[1.0, 0.0, 2.0, 1.0]]).expand(200, 4)
    (sample,) = lower_and_run(lambda w: torch.multinomial(w, 3), weights)
    assert sample.shape == (200, 3)
    assert all(sorted(row) == [0, 2, 3] for row in sample)


@pytest.mark.parametrize("p", [0.0, 0.25, 1.0])
def test_dropout_backward(p: float) -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = x.detach().requires_grad_()
        out, mask = aten.native_dropout(x, p, True)
        return out.detach(), mask, torch.autograd.grad(out.sum(), x)[0]

    x = torch.full((1000,), 2.0)
    out, mask, grad = lower_and_run(function, x)
    assert mask.dtype == np.bool_
    scale = 0 if p == 1 else 1 / (1 - p)
    np.testing.assert_allclose(out, 2 * mask * scale, rtol=1e-6)
    np.testing.assert_allclose(grad, mask * scale, rtol=1e-6)
    assert abs(mask.mean() - (1 - p)) < 0.06


def test_dropout_outside_of_training() -> None:
    check_op(lambda x: aten.native_dropout(x, 0.5, False), torch.randn(5))


def test_rrelu() -> None:
    check_op(lambda x: F.rrelu(x, training=False), torch.randn(9, requires_grad=True))

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = x.detach().requires_grad_()
        out = F.rrelu(x, 0.1, 0.3, training=True)
        return out.detach(), torch.autograd.grad(out.sum(), x)[0]

    x = torch.randn(500)
    out, grad = lower_and_run(function, x)
    np.testing.assert_allclose(out, grad * x.numpy(), rtol=1e-6)
    negative = grad[x.numpy() <= 0]
    assert negative.min() >= 0.1
    assert negative.max() <= 0.3
    assert (grad[x.numpy() > 0] == 1).all()


def test_gamma_gradient() -> None:
    alpha, sample = torch.tensor([0.5, 2.0, 9.0]), torch.tensor([0.3, 2.5, 7.0])
    check_op(lambda a, s: torch._standard_gamma_grad(a, s), alpha, sample, rtol=1e-4)


def test_masks_of_one_program_are_independent() -> None:
    key = jax.random.key(0)
    masks = [np.asarray(keep_mask(mask_key(key, number), 0.5, (200, 200))) for number in range(4)]
    for first, second in itertools.combinations(masks, 2):
        # 40,000 draws: five deviations of the share that agrees by chance
        assert abs((first == second).mean() - 0.5) < 5 * 0.5 / 200


@pytest.mark.parametrize("probability", [0.0, 0.1, 0.5, 0.9, 1 - 2**-25, 1.0])
def test_the_threshold_of_a_mask_is_the_same_for_numbers_and_arrays(probability: float) -> None:
    key = mask_key(jax.random.key(1), 0)
    np.testing.assert_array_equal(keep_mask(key, probability, (99,)), keep_mask(key, jnp.float32(probability), (99,)))


@pytest.mark.parametrize("probability", [0.0, 0.001, 0.01, 0.1, 0.5, 0.75, 0.9, 0.99, 1 - 2**-25, 1.0])
def test_masks_by_row_keep_the_share_asked_for(probability: float) -> None:
    mask = np.asarray(keep_mask_by_row(mask_key(jax.random.key(2), 0), probability, (500, 2000)))
    deviation = (probability * (1 - probability) / mask.size) ** 0.5
    assert abs(mask.mean() - probability) <= 5 * deviation + 1e-3 * min(probability, 1 - probability)
    # of a column's 500; the last term is for shares so small that their sums are no normal ones
    of_column = 6 * (500 * probability * (1 - probability)) ** 0.5 + 6 * (0 < probability < 1)
    assert (abs(mask.sum(0) - 500 * probability) <= of_column).all()


@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9])
def test_columns_that_share_a_hash_are_independent(probability: float) -> None:
    assert halves_suffice(probability)
    mask = np.asarray(keep_mask_by_row(mask_key(jax.random.key(3), 0), probability, (1000, 10 * PAIRED)))
    deviation = probability * (1 - probability)
    centred = mask - probability
    for distance in (*range(1, PAIRED + 1), 2 * PAIRED, 4 * PAIRED + PAIRED // 2):
        products = centred[:, distance:] * centred[:, :-distance]
        # five deviations of the mean of independent products
        assert abs(products.mean()) < 5 * deviation / products.size**0.5, distance
    partners = centred.reshape(1000, 10, 2, PAIRED // 2).prod(2)
    assert abs(partners.mean()) < 5 * deviation / partners.size**0.5


def test_shares_that_16_bits_cannot_tell_take_all_bits() -> None:
    assert all(halves_suffice(kept) for kept in (0.0, 0.1, 0.5, 0.75, 0.8, 0.9, 0.99, 1.0))
    assert not any(halves_suffice(kept) for kept in (1e-5, 0.001, 0.9999, 1 - 1e-6))
