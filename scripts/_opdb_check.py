"""One operator of PyTorch's database: through capture and lowering, compared with eager PyTorch."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import _opdb_compare as compare
import jax
import numpy as np
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from systolic.compiler import CaptureError
from systolic.compiler.capture._graph import TensorInput
from systolic.compiler.capture._trace import Call, Captured, capture
from systolic.compiler.lowering import LoweringContext, interpret
from systolic.runtime._convert import to_jax_array

DTYPES = (torch.float32, torch.int64, torch.bool, torch.complex64, torch.bfloat16)
"""The dtype of an operator's samples: the first of these that it supports."""

UNINITIALISED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
UP_TO_SIGN = {"svd", "linalg.svd", "svd_lowrank", "pca_lowrank", "linalg.eig", "linalg.eigh"}
EXAMINED = 64
DRAWS = 100

Tensors = list[torch.Tensor]


@dataclass
class OpResult:
    """What became of one operator.

    Attributes:
        status: passed, partly (some samples are refused, the rest passed), random, unsupported, wrong.
        passed: samples that agree with eager PyTorch.
        samples: samples that eager PyTorch runs.
        backward: whether gradients were compared.
        reasons: why samples failed, each once.
        ops: the overloads in the captured graphs.
    """

    name: str
    status: str = "unsupported"
    passed: int = 0
    samples: int = 0
    backward: bool = False
    reasons: list[str] = field(default_factory=list)
    ops: list[str] = field(default_factory=list)
    note: str = ""


def name_of(op: OpInfo) -> str:
    """The operator's name with its variant."""
    return f"{op.name} ({op.variant_test_name})" if op.variant_test_name else op.name


def operators() -> dict[str, OpInfo]:
    """PyTorch's operator database by name."""
    return {name_of(op): op for op in op_db}


def check_operator(op: OpInfo, count: int) -> OpResult:
    """Run up to `count` samples of an operator, forward and backward."""
    result = OpResult(name_of(op))
    dtype = next((d for d in DTYPES if d in op.supported_dtypes("cpu")), None)
    if dtype is None:
        result.reasons.append("not available in PyTorch on a CPU")
        return result
    outcomes: set[str] = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sample in _samples(op, dtype, count):
            try:
                outcome, reason = _check_sample(op, sample, dtype, result)
            except Exception as error:  # the comparison itself: report it, and go on with the next operator
                outcome, reason = "failed", f"{type(error).__name__}: {error}"[:240]
            if outcome == "skipped":
                continue
            outcomes.add(outcome)
            result.samples += 1
            result.passed += outcome in ("passed", "random")
            if outcome == "passed" and reason:
                result.note = reason
            elif reason and reason not in result.reasons:
                result.reasons.append(reason)
    result.status = _overall(outcomes)
    result.note = "up to sign" if op.name in UP_TO_SIGN else result.note
    if not outcomes:
        result.reasons.append("eager PyTorch runs none of its samples on a CPU")
    return result


def _overall(outcomes: set[str]) -> str:
    for status in ("wrong", "failed"):
        if status in outcomes:
            return status
    if "unsupported" in outcomes:
        return "partly" if outcomes - {"unsupported"} else "unsupported"
    return "random" if "random" in outcomes else "passed" if outcomes else "unsupported"


def _samples(op: OpInfo, dtype: torch.dtype, count: int) -> Iterator[SampleInput]:
    """Up to `count` samples, spread over the first ones: neighbours in the database are much alike."""
    torch.manual_seed(0)
    differentiable = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    found = list(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=differentiable), EXAMINED))
    if len(found) <= count:
        return iter(found)
    return (found[round(i * (len(found) - 1) / max(count - 1, 1))] for i in range(count))


class _Step:
    """A sample as a function of tensors: the operator's results, and the gradients of its inputs."""

    def __init__(self, op: OpInfo, sample: SampleInput) -> None:
        leaves, self.spec = tree_flatten((sample.input, tuple(sample.args), dict(sample.kwargs)))
        self.op, self.sample, self.leaves = op, sample, leaves
        self.places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        self.wanted = [n for n, i in enumerate(self.places) if leaves[i].requires_grad]
        self.inputs = [_plain(leaves[i]) for i in self.places]
        self.cotangents: Tensors = []

    def forward(self, given: Tensors) -> tuple[Any, Tensors, Tensors]:
        """The result, its differentiable tensors, and the inputs to differentiate."""
        inputs = [x.detach().requires_grad_() if n in self.wanted else x for n, x in enumerate(given)]
        leaves = list(self.leaves)
        for place, x in zip(self.places, inputs, strict=True):
            leaves[place] = x
        first, args, kwargs = tree_unflatten(leaves, self.spec)
        result = self.op(first, *args, **kwargs)
        if not self.wanted:
            return result, [], []
        seen = tree_leaves(self.sample.output_process_fn_grad(result))
        sources = [t for t in seen if isinstance(t, torch.Tensor) and t.requires_grad]
        return result, sources, [inputs[n] for n in self.wanted]

    def prepare(self) -> None:
        """Run once in eager PyTorch, and fix the cotangents."""
        _, sources, _ = self.forward([t.clone() for t in self.inputs])
        generator = torch.Generator().manual_seed(1)
        self.cotangents = [torch.randn(t.shape, dtype=t.dtype, generator=generator) for t in sources]

    def __call__(self, flat: Tensors) -> tuple[Any, list[torch.Tensor | None]]:
        """The result and the gradients, from inputs and cotangents."""
        given, cotangents = flat[: len(self.inputs)], flat[len(self.inputs) :]
        result, sources, wanted = self.forward(given)
        grads: list[torch.Tensor | None] = []
        if sources:
            grads = list(torch.autograd.grad(sources, wanted, cotangents, allow_unused=True))
        if self.op.name in UP_TO_SIGN:
            result = self.sample.output_process_fn_grad(result)
        return _detached(result), grads

    def eager(self, convert: Callable[[torch.Tensor], torch.Tensor] = torch.clone) -> list[Any]:
        """Everything that the step gives in eager PyTorch, flat."""
        return tree_leaves(self([convert(t) for t in [*self.inputs, *self.cotangents]]))


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor as it comes from the user's data: contiguous, nothing lazy about it."""
    tensor = tensor.detach()
    if tensor.layout != torch.strided:
        return tensor
    return tensor.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)


def _detached(structure: Any) -> Any:
    leaves, spec = tree_flatten(structure)
    return tree_unflatten([t.detach() if isinstance(t, torch.Tensor) else t for t in leaves], spec)


def _check_sample(op: OpInfo, sample: SampleInput, dtype: torch.dtype, result: OpResult) -> tuple[str, str]:
    step = _Step(op, sample)
    if any(t.layout != torch.strided or t.is_quantized for t in step.inputs):
        return "unsupported", "sparse or quantized input"
    try:
        step.prepare()
        expected = step.eager()
    except Exception:  # whatever eager PyTorch refuses is no question to us
        return "skipped", ""
    result.backward = result.backward or bool(step.cotangents)
    try:
        captured = _captured(step)
        result.ops = sorted({*result.ops, *_overloads(captured)})
        run = _runner(captured, step)
        received = run(0)
    except Exception as error:
        return _classified(error)
    if op.name in UNINITIALISED:
        return "random" if compare.same_kinds(expected, received) == "" else "wrong", "uninitialised memory"
    if _is_random(captured):
        return compare.distribution(lambda seed: _drawn(step, seed), run, DRAWS)
    return _compared(op, step, dtype, expected, received)


def _compared(op: OpInfo, step: _Step, dtype: torch.dtype, expected: list[Any], received: list[Any]) -> tuple[str, str]:
    difference = compare.difference(expected, received, compare.tolerance(op, dtype))
    if not difference:
        return "passed", ""
    if dtype not in (torch.float32, torch.complex64):
        return "wrong", difference
    try:
        exact = step.eager(_doubled)
    except Exception:  # no double precision to compare with
        return "wrong", difference
    if compare.as_exact(exact, expected, received, [*step.inputs, *step.cotangents]):
        return "passed", "rounding"
    return "wrong", difference


def _drawn(step: _Step, seed: int) -> list[Any]:
    """One random result of eager PyTorch; the database's own functions would reset the seed in every call."""
    torch.manual_seed(seed)
    with mock.patch.object(torch, "manual_seed"):
        return step.eager()


def _doubled(tensor: torch.Tensor) -> torch.Tensor:
    wide = {torch.float32: torch.float64, torch.complex64: torch.complex128}
    return tensor.to(wide.get(tensor.dtype, tensor.dtype), copy=True)


def _captured(step: _Step) -> Captured:
    leaves = [*step.inputs, *step.cotangents]
    # as in a step, whose batch answers what its way or a size depends on
    return capture(Call(step, leaves, lambda values: (list(values),), {}, {}, values=lambda: list(leaves)))


def _overloads(captured: Captured) -> set[str]:
    return {str(n.target) for n in captured.graph.nodes if isinstance(n.target, torch._ops.OpOverload)}


def _is_random(captured: Captured) -> bool:
    return any(torch.Tag.nondeterministic_seeded in getattr(n.target, "tags", ()) for n in captured.graph.nodes)


def _runner(captured: Captured, step: _Step) -> Callable[[int], list[Any]]:
    """The compiled graph as a function of the seed, giving NumPy arrays and plain values."""
    leaves = [*step.inputs, *step.cotangents]
    assert not captured.scalars
    given = []
    for source in captured.inputs:
        assert isinstance(source, TensorInput)
        given.append(leaves[source.leaf] if source.constant is None else source.constant)  # pyright: ignore
    with jax.enable_x64(True):
        arrays = [to_jax_array(t) for t in given]
        function = jax.jit(lambda key, xs: interpret(captured.graph, xs, LoweringContext(key)))

    def run(seed: int) -> list[Any]:
        with jax.enable_x64(True):
            outputs = function(jax.random.key(seed), arrays)
            fetched = [np.asarray(x) for x in outputs]
        return tree_leaves(captured.result.fill(fetched.__getitem__, lambda i: fetched[i].item(), ()))

    return run


_TELLING = (
    ("sparse", "sparse tensor inside"),
    ("quantized", "quantized tensor inside"),
    ("shape depends on the values", "data-dependent shape"),
    ("data is not allocated yet", "needs the values of a tensor while the step is captured"),
    ("complexhalf", "complex32 has no equivalent in JAX"),
    ("nested", "nested tensor inside"),
)


def _classified(error: Exception) -> tuple[str, str]:
    """Whether an error is a refusal, and of what."""
    text = str(error)
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    for word, reason in _TELLING:
        if word in text.lower():
            return "unsupported", reason
    if isinstance(error, CaptureError):
        return "unsupported", first.removeprefix("The op ").replace(" cannot run inside the compiled step", "")
    if isinstance(error, ValueError) or (isinstance(error, TypeError) and "no equivalent in JAX" in text):
        return "unsupported", first[:200]
    return "failed", f"{type(error).__name__}: {first}"[:240]
