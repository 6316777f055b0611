"""What a captured step refuses, what it records as it is, and values that it computes positions from."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import systolic
from systolic.compiler import CaptureError, DataDependentError, UnsupportedOpError
from systolic.compiler.capture import Call, capture
from systolic.compiler.capture._op_policy import refuse_op
from systolic.compiler.capture._refused import REFUSED

T = torch.Tensor

REFUSALS: dict[str, tuple[Callable[[T], object], str]] = {
    "mask": (lambda x: x[x > 0], "torch.where"),
    "masked_select": (lambda x: x.masked_select(x > 0), "torch.where"),
    "nonzero": (lambda x: x.nonzero(), "nonzero_static"),
    "unique": (torch.unique, "data loader"),
    "bincount": (lambda x: torch.bincount(x.long().abs().reshape(-1)), "index_add"),
    "repeat_interleave": (lambda x: x.repeat_interleave(x[0].long(), 1), "output_size"),
    "equal": (lambda x: torch.equal(x, x + 1), "Python bool"),
    "mask_and_index": (lambda x: x.index_put((x[:, 0] > 0, torch.tensor([1])), x[0, 0]), "torch.where"),
    "memory_outside_of_the_tensor": (lambda x: x[1].as_strided((6,), (1,), 0), "memory"),
    "product_of_two_dtypes": (lambda x: x @ x.bfloat16().T, "torch.float32 by torch.bfloat16"),
    "layer_of_another_dtype": (lambda x: F.linear(x, x.bfloat16(), x[:, 0].bfloat16()), "by torch.float32"),
    "matrix_and_vector_of_two_dtypes": (lambda x: x.mv(x[0].double()), "torch.float32 by torch.float64"),
    "convolution_of_two_dtypes": (lambda x: F.conv1d(x[None], torch.ones(1, 2, 1).bfloat16()), "torch.float32 by torch.bf"),
    "no_lowering": (lambda x: torch.special.airy_ai(x), "no lowering"),
}


# Answered where there is a batch to look at (test_speculation.py); refused where there is none, as in a preflight.
NEED_VALUES = ("mask", "masked_select", "nonzero", "unique", "bincount", "repeat_interleave", "equal", "mask_and_index")


# promise 6: L#7368, L#8863
@pytest.mark.parametrize("case", [case for case in REFUSALS if case not in NEED_VALUES])
def test_refused_with_the_line_and_a_way_on(case: str) -> None:
    function, hint = REFUSALS[case]
    with pytest.raises(UnsupportedOpError, match=hint) as caught:
        systolic.jit(function)(torch.ones(2, 3))
    assert "test_refused.py" in str(caught.value)


@pytest.mark.parametrize("case", NEED_VALUES)
def test_without_values_what_needs_them_is_refused_with_the_line(case: str) -> None:
    function, hint = REFUSALS[case]
    with pytest.raises(UnsupportedOpError, match=hint) as caught:
        capture(Call(function, [torch.ones(2, 3)], tuple, {}, {}))
    assert "test_refused.py" in str(caught.value)


OTHER_KINDS: dict[str, Callable[[T], object]] = {
    "jagged": lambda x: torch.nested.nested_tensor_from_jagged(x, torch.tensor([0, 1, 2])).values(),
    "nested": lambda x: torch.nested.nested_tensor([x[:1], x[1:]], layout=torch.jagged).sum(),
    "masked": lambda x: torch.masked.masked_tensor(x, x > 0).sum().get_data(),
    "named": lambda x: x.refine_names("row", "column").sum("row").rename(None),
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of (nested|MaskedTensors):UserWarning")
@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_tensors_of_other_kinds_are_refused_with_the_line(kind: str) -> None:
    with pytest.raises(CaptureError, match=r"a tensor of another kind(.|\n)*test_refused.py:\d+(.|\n)*Options: pad"):
        systolic.jit(OTHER_KINDS[kind])(torch.ones(2, 3))


@pytest.mark.parametrize(
    "wants",
    [lambda x: x if x.data_ptr() else x * 2, lambda x: torch.utils.dlpack.to_dlpack(x), lambda x: torch.save(x, io.BytesIO())],
)
def test_memory_of_a_traced_tensor_is_refused_with_the_line(wants: Callable[[T], object]) -> None:
    with pytest.raises(DataDependentError, match=r"hands a tensor's values(.|\n)*test_refused.py:\d+"):
        systolic.jit(wants)(torch.ones(2, 3))


def test_an_error_after_a_refusal_that_the_step_catches_is_its_own() -> None:
    def step(x: T) -> T:
        try:
            return torch.special.airy_ai(x)
        except RuntimeError:
            raise RuntimeError("neither this way") from None

    with pytest.raises(RuntimeError, match="neither this way"):
        systolic.jit(step)(torch.ones(2))


def test_an_op_with_a_lowering_can_be_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(REFUSED, torch.ops.aten.erf.default, raising=False)
    refuse_op(torch.ops.aten.erf.default, "a test says so")
    with pytest.raises(UnsupportedOpError, match="a test says so"):
        systolic.jit(lambda x: x.erf())(torch.ones(2))
    del REFUSED[torch.ops.aten.erf.default]


def test_an_op_with_a_lowering_is_recorded_as_it_is() -> None:
    step = systolic.jit(lambda x: x.roll(1, 0).sigmoid())
    step(torch.ones(3, 2))
    assert [n.target for n in step.graph().nodes if n.op == "call_function"] == [
        torch.ops.aten.roll.default,
        torch.ops.aten.sigmoid.default,
    ]


def test_checks_of_linear_algebra_leave_no_trace() -> None:
    x = torch.eye(3) * 2
    torch.testing.assert_close(systolic.jit(torch.linalg.inv)(x), torch.linalg.inv(x))


def test_positions_that_change_from_call_to_call() -> None:
    x, cursor = torch.arange(12.0).reshape(2, 6), torch.nn.Identity()
    cursor.position = 0

    def step(x: T) -> tuple[T, ...]:
        at = cursor.position
        leaf = x.detach().requires_grad_()
        doubled = leaf * 2
        doubled[:, at : at + 2].mul_(3)
        loss = (doubled.square().sum() + leaf[:, at : at + 2].sum() + leaf.select(1, at).sum()).sum()
        return loss.detach(), torch.autograd.grad(loss, leaf)[0]

    compiled = systolic.jit(step)
    for cursor.position in (0, 1, 2, 4, 3):
        for got, want in zip(compiled(x), step(x), strict=True):
            torch.testing.assert_close(torch.from_numpy(got.numpy().copy()), want)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("shape", [(4, 3), (4,), (4, 1)])
def test_gaussian_nll_loss(full: bool, reduction: str, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x, target, var = torch.randn(4, 3), torch.randn(4, 3), torch.rand(shape) * 1e-5

    def step(x: T, target: T, var: T) -> T:
        leaves = [x.detach().requires_grad_(), var.detach().requires_grad_()]
        loss = F.gaussian_nll_loss(leaves[0], target, leaves[1], full, 5e-6, reduction)
        grads = torch.autograd.grad(loss.sum(), leaves)
        return torch.cat([loss.detach().reshape(-1), *(g.reshape(-1) for g in grads)])

    got = torch.from_numpy(systolic.jit(step)(x, target, var).numpy().copy())
    torch.testing.assert_close(got, step(x, target, var))


def test_gaussian_nll_loss_refuses_what_pytorch_refuses() -> None:
    x = torch.ones(4, 3)
    for arguments in ({"var": torch.ones(2)}, {"var": -1.0}, {"var": torch.ones(4, 3), "reduction": "max"}):
        with pytest.raises(ValueError):
            systolic.jit(lambda x, keywords=arguments: F.gaussian_nll_loss(x, x, **keywords))(x)
