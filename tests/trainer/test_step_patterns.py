"""Training steps as people write them equal eager PyTorch, or are answered in one sentence."""

from __future__ import annotations

import re

import pytest
from trainer.step_patterns import PATTERNS
from trainer.step_sweep import difference, train

from systolic.compiler import CaptureError

# By pattern: what the answer says. Each is a step that does not compile yet.
REFUSED = {
    "PrintDetached": "asks for the value of a tensor",
    "FloatOfTensor": "asks for the value of a tensor",
    "Lbfgs": "asks for the value of a tensor",
    "NumpyNoise": "random numbers",
    "PythonShuffle": "random numbers",
    "Packed": "packed sequence",
    "PackedOutput": "packed sequence",
    "OldSpectralNorm": "two tensors over the same memory",
    "SparseEmbedding": "has no lowering",
    "Histogram": "has no lowering",
    "Scripted": "TorchScript",
}
# By pattern: the error of PyTorch's or NumPy's that ends it, which says nothing about systolic.
UNCLEAR = {
    "SklearnAccuracy": ".numpy() is not supported",
    "NumpyMean": ".numpy() is not supported",
    "Hungarian": ".numpy() is not supported",
    "NumpyOfStep": "no callable exp method",
    "SigmoidRampUp": "no callable exp method",
    "PerSampleGradients": "dynamicLayerStack",
    "Vmapped": "has no attribute 'constant'",
    "SparseProduct": "doesn't have storage",
}
EQUAL = [name for name in PATTERNS if name not in REFUSED and name not in UNCLEAR]


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", EQUAL)
def test_a_step_equals_eager_pytorch(name: str) -> None:
    assert difference(train(name, compiled=False), train(name, compiled=True)) == ""


@pytest.mark.thin(4)
@pytest.mark.parametrize("name", EQUAL)
def test_on_eight_cores(name: str) -> None:
    assert difference(train(name, compiled=False), train(name, compiled=True, devices=8)) == ""


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_compile_is_answered(name: str) -> None:
    with pytest.raises((CaptureError, ValueError), match=REFUSED[name]):
        train(name, compiled=True)


@pytest.mark.parametrize("name", UNCLEAR)
def test_what_ends_in_an_error_of_others(name: str) -> None:
    """These errors are to become answers, or equal steps; a row that does has to move."""
    with pytest.raises(Exception, match=re.escape(UNCLEAR[name])):
        train(name, compiled=True)
