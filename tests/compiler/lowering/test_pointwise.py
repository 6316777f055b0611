from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from compiler.lowering.op_check import check_op

pytestmark = pytest.mark.thin(4)

T = torch.Tensor


def draw(*shape: int, dtype: torch.dtype = torch.float32, grad: bool = True, low: float = -2.0, high: float = 2.0) -> T:
    generator = torch.Generator().manual_seed(sum(shape) + 7 * len(shape))
    values = (torch.rand(shape, generator=generator) * (high - low) + low).to(dtype)
    return values.requires_grad_(grad and dtype.is_floating_point)


def integers(*shape: int, low: int = 1, high: int = 9, dtype: torch.dtype = torch.int64) -> T:
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(3)).to(dtype)


EDGES = torch.tensor([-3.0, -2.5, -1.5, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 1.5, 2.5, 3.0, 20.0, 25.0, -20.0, -25.0])
SPECIAL = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1.0, -1.5])

ANY_REAL: list[Callable[[T], T]] = [
    torch.neg, torch.abs, torch.sign, torch.exp, torch.expm1, torch.tanh, torch.sigmoid, torch.relu,
    torch.sin, torch.cos, torch.atan, torch.asinh, torch.sinh, torch.cosh, torch.erf, torch.erfc, torch.exp2,
    torch.deg2rad, torch.rad2deg, torch.sinc, torch.square, torch.positive, torch.floor, torch.ceil, torch.trunc,
    torch.frac, torch.round,
]  # fmt: skip
POSITIVE: list[Callable[[T], T]] = [
    torch.sqrt, torch.rsqrt, torch.log, torch.log2, torch.log10, torch.log1p, torch.reciprocal, torch.lgamma,
    torch.digamma, torch.i0, torch.special.i0e, torch.special.i1, torch.special.i1e, torch.special.entr,
    torch.special.log_ndtr, torch.special.ndtr, torch.special.erfcx,
]  # fmt: skip
INSIDE_ONE: list[Callable[[T], T]] = [torch.asin, torch.acos, torch.atanh, torch.erfinv, torch.tan, torch.special.ndtri]


def name(value: object) -> str | None:
    return getattr(value, "__name__", None)


@pytest.mark.parametrize("function", ANY_REAL + [torch.log1p, torch.special.log_ndtr], ids=name)
def test_unary_on_all_reals(function: Callable[[T], T]) -> None:
    check_op(function, draw(3, 5, low=-0.9 if function is torch.log1p else -2.0))


@pytest.mark.parametrize("function", ANY_REAL, ids=name)
def test_unary_at_edges(function: Callable[[T], T]) -> None:
    check_op(function, EDGES.clone().requires_grad_())


@pytest.mark.parametrize("function", POSITIVE, ids=name)
def test_unary_on_positives(function: Callable[[T], T]) -> None:
    check_op(function, draw(4, 5, low=0.05, high=6.0))


@pytest.mark.parametrize("function", INSIDE_ONE, ids=name)
def test_unary_inside_one(function: Callable[[T], T]) -> None:
    check_op(function, draw(4, 5, low=0.05, high=0.95))


def test_unary_outside_one() -> None:
    check_op(torch.acosh, draw(4, 5, low=1.1, high=4.0))


@pytest.mark.parametrize("function", [torch.exp, torch.sqrt, torch.sin, torch.sigmoid, torch.log, torch.rsqrt], ids=name)
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool])
def test_integers_become_floats(function: Callable[[T], T], dtype: torch.dtype) -> None:
    check_op(function, integers(3, 4, dtype=dtype))


@pytest.mark.parametrize("function", [torch.neg, torch.abs, torch.sign, torch.relu, torch.floor, torch.round], ids=name)
def test_integers_stay_integers(function: Callable[[T], T]) -> None:
    check_op(function, integers(3, 4, low=-5))


@pytest.mark.parametrize("function", ANY_REAL, ids=name)
def test_unary_in_bfloat16(function: Callable[[T], T]) -> None:
    check_op(function, draw(3, 4, dtype=torch.bfloat16, grad=False), rtol=4e-3)
    # eager rounds between the ops of a gradient, XLA does not
    check_op(function, draw(3, 4, dtype=torch.bfloat16), rtol=1e-2)


@pytest.mark.parametrize("function", [*ANY_REAL, torch.sgn, *POSITIVE], ids=name)
def test_unary_on_special_values(function: Callable[[T], T]) -> None:
    check_op(function, SPECIAL)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3)])
def test_unary_shapes(shape: tuple[int, ...]) -> None:
    check_op(lambda x: torch.tanh(x) * 2 + x.exp(), draw(*shape))


BINARY: dict[str, Callable[..., T]] = {
    "add": lambda x, y: x + y,
    "add_alpha": lambda x, y: torch.add(x, y, alpha=0.3),
    "add_number": lambda x, y: x + 0.1,
    "sub": lambda x, y: torch.sub(x, y, alpha=2),
    "rsub": lambda x, y: torch.rsub(x, y, alpha=3),
    "rsub_number": lambda x, y: 1.0 - y,
    "mul": lambda x, y: x * y,
    "mul_number": lambda x, y: x * 0.1,
    "div": lambda x, y: x / y,
    "div_number": lambda x, y: x / 3,
    "number_div": lambda x, y: 3 / y,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "atan2": torch.atan2,
    "hypot": torch.hypot,
    "copysign": torch.copysign,
    "copysign_number": lambda x, y: torch.copysign(x, -1.0),
    "logaddexp": torch.logaddexp,
    "logaddexp2": torch.logaddexp2,
    "fmod": torch.fmod,
    "fmod_number": lambda x, y: torch.fmod(x, 0.7),
    "remainder": torch.remainder,
    "remainder_number": lambda x, y: torch.remainder(x, -0.7),
    "floor_divide": lambda x, y: torch.floor_divide(x.detach(), y.detach()),
    "trunc_divide": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "floor_divide_number": lambda x, y: torch.div(x, 0.3, rounding_mode="floor"),
    "true_divide_mode": lambda x, y: torch.div(x, y, rounding_mode=None),
    "nextafter": lambda x, y: torch.nextafter(x.detach(), y.detach()),
    "ldexp": lambda x, y: torch.ldexp(x, y),
    "heaviside": lambda x, y: torch.heaviside(x.detach().round(), y.detach()),
    "xlogy": lambda x, y: torch.xlogy(x, y.abs()),
    "xlogy_number": lambda x, y: torch.xlogy(x, 2.0) + torch.xlogy(2.0, y.abs()),
    "xlog1py": lambda x, y: torch.special.xlog1py(x, y.abs()),
    "zeta": lambda x, y: torch.special.zeta(x.detach().abs() + 1.5, y.detach().abs() + 0.5),
    "pow_tensors": lambda x, y: x.abs() ** y,
    "addcmul": lambda x, y: torch.addcmul(x, x, y, value=0.5),
    "addcdiv": lambda x, y: torch.addcdiv(x, x, y, value=-0.5),
    "lerp": lambda x, y: torch.lerp(x, y, 0.3),
    "lerp_beyond_half": lambda x, y: torch.lerp(x, y, 0.9),
    "lerp_tensor": lambda x, y: torch.lerp(x, y, y),
    "dist": lambda x, y: torch.dist(x, y, 2),
}


@pytest.mark.parametrize("function", BINARY.values(), ids=BINARY)
def test_binary(function: Callable[..., T]) -> None:
    check_op(function, draw(3, 5), draw(3, 5, low=0.3, high=1.9))


@pytest.mark.parametrize("case", [c for c in BINARY if c not in ("nextafter", "dist", "zeta")])
def test_binary_in_bfloat16(case: str) -> None:
    check_op(BINARY[case], draw(3, 5, dtype=torch.bfloat16), draw(3, 5, dtype=torch.bfloat16, low=0.3, high=1.9), rtol=1e-2)


@pytest.mark.parametrize("case", ["add", "sub", "mul", "div", "add_number", "mul_number", "div_number", "maximum"])
def test_arithmetic_in_bfloat16_is_exact(case: str) -> None:
    check_op(BINARY[case], draw(3, 5, dtype=torch.bfloat16, grad=False), draw(3, 5, dtype=torch.bfloat16, grad=False), rtol=0)


@pytest.mark.parametrize("case", ["add", "sub", "mul", "div", "maximum", "floor_divide", "trunc_divide", "remainder"])
@pytest.mark.parametrize(
    "pair",
    [
        (torch.float32, torch.int64),
        (torch.bfloat16, torch.float32),
        (torch.int32, torch.int64),
        (torch.uint8, torch.int8),
        (torch.int64, torch.bfloat16),
    ],
    ids=str,
)
def test_mixed_dtypes(case: str, pair: tuple[torch.dtype, torch.dtype]) -> None:
    left, right = (draw(4, low=1, high=9, dtype=d) if d.is_floating_point else integers(4, dtype=d) for d in pair)
    check_op(BINARY[case], left, right, rtol=1e-2 if torch.bfloat16 in pair and case != "add" else 1e-5)


def test_zero_dim_tensors_do_not_widen() -> None:
    check_op(lambda x, s: x * s, draw(3, dtype=torch.bfloat16, grad=False), torch.tensor(0.37), rtol=0)
    check_op(lambda x, s: x * s, integers(3), torch.tensor(0.37), rtol=1e-2)
    check_op(lambda x, s: x * s, integers(3, dtype=torch.int32), torch.tensor(2))
    check_op(lambda x: x + 300, integers(3, dtype=torch.uint8))
    check_op(lambda x: x * 1.5, integers(3))


def test_integer_division_signs() -> None:
    numerator, denominator = torch.tensor([7, -7, 7, -7, 0]), torch.tensor([2, 2, -2, -2, 3])
    for function in (
        torch.floor_divide,
        torch.remainder,
        torch.fmod,
        lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    ):
        check_op(function, numerator, denominator)


def test_float_floor_division_edges() -> None:
    x = torch.tensor([1.0, -1.0, 0.6, 6.0, -6.0, 1.0, 0.0, float("inf"), -0.5])
    y = torch.tensor([0.1, 0.1, 0.2, 0.1, 0.1, 0.0, 2.0, 2.0, float("inf")])
    check_op(torch.floor_divide, x, y)
    check_op(torch.remainder, x, y)
    check_op(torch.fmod, x, y)


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 4, -1, -2, 0.5, -0.5, 1.7, 2.0, 0.0])
def test_pow_number(exponent: float) -> None:
    check_op(lambda x: x**exponent, draw(3, 4, low=0.2))


def test_pow_of_negatives_and_integers() -> None:
    check_op(lambda x: x**3, draw(3, 4))
    check_op(lambda x: x**2, integers(5, low=-4))
    check_op(lambda x: 2**x, integers(5))
    check_op(lambda x: 0.5**x, integers(5))
    check_op(lambda x, y: x**y, integers(5), integers(5))
    check_op(lambda x: (-2.0) ** x, torch.tensor([0.0, 1.0, 2.0, 3.0]))


@pytest.mark.parametrize("beta", [0.9, 0.95, 0.999, 0.9999, 1.1, 2.0, 1e-3])
def test_pow_of_number_is_as_accurate_as_float32(beta: float) -> None:
    from compiler.lowering.op_check import lower_and_run

    steps = torch.tensor([0.0, 1.0, 2.0, 3.0, 10.0, 77.0, 1000.0, 4097.0, 30001.0, 0.5, -3.0])
    expected = (beta ** steps.double()).float()
    (received,) = lower_and_run(lambda s: beta**s, steps)
    normal = (expected.abs() > 1.2e-38) & expected.isfinite()
    torch.testing.assert_close(torch.tensor(received)[normal], expected[normal], rtol=2.5e-7, atol=0)


def test_pow_of_number_at_special_values() -> None:
    check_op(lambda x: 0.9**x, SPECIAL)
    check_op(lambda x: 2.0**x, SPECIAL)
    check_op(lambda x: 0.0**x, SPECIAL)
    check_op(lambda x: 1.5**x, draw(4))


@pytest.mark.parametrize("decimals", [0, 1, 2, -1])
def test_round_decimals(decimals: int) -> None:
    check_op(lambda x: torch.round(x, decimals=decimals), draw(20, low=-90, high=90))


def test_nan_to_num_and_logit() -> None:
    check_op(torch.nan_to_num, SPECIAL.clone().requires_grad_())
    check_op(lambda x: torch.nan_to_num(x, 1.0, 2.0, -2.0), SPECIAL)
    check_op(torch.nan_to_num, integers(3))
    check_op(torch.logit, draw(5, low=0.1, high=0.9))
    check_op(lambda x: torch.logit(x, eps=0.2), draw(9, low=0.01, high=0.99))


def test_polygamma_and_friends() -> None:
    for order in (0, 1, 2):
        check_op(lambda x, order=order: torch.polygamma(order, x), draw(5, low=0.5, high=4.0))
    check_op(lambda x: torch.mvlgamma(x, 2), draw(5, low=2.5, high=4.0))
    check_op(lambda x: torch.frexp(x), draw(5, grad=False))
    check_op(torch.igamma, draw(5, grad=False, low=0.5), draw(5, grad=False, low=0.3))
    check_op(torch.igammac, draw(5, grad=False, low=0.5), draw(5, grad=False, low=0.3))


COMPARISONS = [torch.eq, torch.ne, torch.lt, torch.le, torch.gt, torch.ge]


@pytest.mark.parametrize("function", COMPARISONS, ids=name)
def test_comparisons(function: Callable[..., T]) -> None:
    x = EDGES[:8]
    check_op(function, x, x.flip(0))
    check_op(lambda v: function(v, 1), x)
    check_op(lambda v: function(v, 0.5), integers(4))
    check_op(function, integers(4), torch.tensor(2.5))
    check_op(function, SPECIAL, SPECIAL.flip(0))


@pytest.mark.parametrize("function", [torch.logical_and, torch.logical_or, torch.logical_xor], ids=name)
def test_logic(function: Callable[..., T]) -> None:
    check_op(function, SPECIAL, SPECIAL.flip(0))
    check_op(function, integers(4, low=0, high=2), integers(4, low=0, high=2, dtype=torch.bool))


@pytest.mark.parametrize(
    "function",
    [torch.isnan, torch.isinf, torch.isfinite, torch.isposinf, torch.isneginf, torch.signbit, torch.logical_not],
    ids=name,
)
def test_tests_of_one_tensor(function: Callable[[T], T]) -> None:
    check_op(function, SPECIAL)
    check_op(function, integers(4, low=-2))


@pytest.mark.parametrize("function", [torch.bitwise_and, torch.bitwise_or, torch.bitwise_xor], ids=name)
def test_bitwise(function: Callable[..., T]) -> None:
    check_op(function, integers(5, low=-9), integers(5, dtype=torch.int32))
    check_op(lambda x: function(x, 6), integers(5, low=-9))
    check_op(lambda x: function(6, x), integers(5, low=-9))
    check_op(function, integers(5, low=0, high=2, dtype=torch.bool), integers(5, low=0, high=2, dtype=torch.bool).flip(0))


def test_shifts_and_not() -> None:
    for function in (torch.bitwise_left_shift, torch.bitwise_right_shift):
        check_op(function, integers(6, low=-9), integers(6, low=0, high=70))
        check_op(lambda x, function=function: function(x, 2), integers(6, low=-9, dtype=torch.int32))
        check_op(lambda x, function=function: function(5, x), integers(6))
    check_op(lambda x: (x << 1) | (x >> 1), integers(6))
    check_op(torch.bitwise_not, integers(6, low=-9))
    check_op(torch.bitwise_not, torch.tensor([True, False]))
    check_op(torch.gcd, integers(6), integers(6).flip(0))
    check_op(torch.lcm, integers(6), integers(6).flip(0))


def test_where_and_masks() -> None:
    x, y, mask = draw(3, 4), draw(4), integers(3, 4, low=0, high=2, dtype=torch.bool)
    check_op(lambda x, y, m: torch.where(m, x, y), x, y, mask)
    check_op(lambda x, m: torch.where(m, x, 0.5), x, mask)
    check_op(lambda x, m: torch.where(m, 2, x), x, mask)
    check_op(lambda m: torch.where(m, 1.0, 0.0), mask)
    check_op(lambda x, m: x.masked_fill(m, -float("inf")), x, mask)
    check_op(lambda x, m, v: x.masked_fill(m, v), x, mask, torch.tensor(3.0, requires_grad=True))
    check_op(lambda x, y, m: torch.where(m, x, y), x, integers(4), mask)
    check_op(lambda x, y, m: torch.where(m, x, y), draw(3, 4, dtype=torch.bfloat16), draw(4), mask)
    check_op(lambda x, y: torch.isin(x, y), integers(8), integers(3))
    check_op(lambda x: torch.isin(x, 3, invert=True), integers(8))


@pytest.mark.parametrize("bounds", [(-1.0, 1.0), (None, 0.5), (-0.5, None), (1.0, -1.0), (-1, 2)], ids=str)
def test_clamp(bounds: tuple[float | None, float | None]) -> None:
    check_op(lambda x: torch.clamp(x, *bounds), EDGES.clone().requires_grad_())
    check_op(lambda x: torch.clamp(x, *bounds), SPECIAL)
    check_op(lambda x: torch.clamp(x, *bounds), integers(6, low=-4))


def test_clamp_by_tensors() -> None:
    low, high = draw(4, low=-1, high=0), draw(3, 4, low=0, high=1)
    check_op(lambda x, a, b: torch.clamp(x, a, b), draw(3, 4), low, high)
    check_op(lambda x, a: torch.clamp_min(x, a), draw(3, 4), low)
    check_op(lambda x, b: torch.clamp_max(x, b), draw(3, 4), high)
    check_op(lambda x: x.clamp_min(0) + x.clamp_max(0.5), EDGES.clone().requires_grad_())


def test_complex_helpers() -> None:
    pair = draw(3, 2)
    check_op(lambda x: torch.view_as_real(torch.view_as_complex(x) * 2j), pair)
    check_op(lambda x: torch.view_as_complex(x).abs(), pair)
    check_op(lambda x: torch.view_as_complex(x).angle(), pair)
    check_op(lambda x: torch.view_as_real(torch.view_as_complex(x).conj() * 3), pair)
    check_op(lambda x: torch.view_as_complex(x).real * 2 + torch.view_as_complex(x).imag, pair)
    check_op(lambda x, y: torch.view_as_real(torch.complex(x, y)), draw(3), draw(3))
    check_op(lambda x, y: torch.view_as_real(torch.polar(x, y)), draw(3, low=0.5), draw(3))
    check_op(torch.angle, SPECIAL)
    z = torch.complex(draw(4, grad=False), draw(4, grad=False, low=0.1))
    for function in (torch.exp, torch.sqrt, torch.tanh, torch.sgn, torch.conj_physical, torch.isfinite, torch.log):
        check_op(function, z)
    check_op(lambda v: v.to(torch.float32), draw(4, dtype=torch.float32))


COMPLEX: dict[str, Callable[[T, T], object]] = {
    "arithmetic": lambda x, y: (x + y * 2) / (x - 3.0) * 1j,
    "mixed": lambda x, y: x * x.real + torch.add(x, y, alpha=2j),
    "reductions": lambda x, y: (x.sum(), x.mean(0), x.var(), torch.linalg.vector_norm(x), x.prod(), x.cumsum(0)),
    "products": lambda x, y: (x @ y.T, torch.vdot(x[0], y[0]), torch.addmm(x[:, :3], x, y.mH)),
    "comparison": lambda x, y: (x == y, x != x, torch.isnan(x), x.any()),
    "functions": lambda x, y: (torch.sin(x), x.reciprocal(), torch.rsqrt(x), x**2, torch.abs(x), torch.sigmoid(x)),
    "layout": lambda x, y: (torch.where(x.real > 0, x, y), x.masked_fill(x.real > 0, 1j), x.tril(), x.roll(1, 0)),
    "parts": lambda x, y: (torch.real(x), torch.imag(x), x.conj() * y, torch.view_as_real(x.conj().resolve_conj())),
}


@pytest.mark.parametrize("function", COMPLEX.values(), ids=COMPLEX)
def test_complex(function: Callable[[T, T], object]) -> None:
    torch.manual_seed(4)
    check_op(function, torch.randn(3, 4, dtype=torch.complex64), torch.randn(3, 4, dtype=torch.complex64))
