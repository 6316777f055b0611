"""Training steps as people write them equal eager PyTorch, or are answered in one sentence."""

from __future__ import annotations

import pytest
from trainer.step_patterns import PATTERNS
from trainer.step_sweep import difference, train

from systolic.compiler import CaptureError
from systolic.exceptions import MisconfigurationException

# By pattern: what the answer says. Each is a step that does not compile yet.
REFUSED = {
    "ScriptedValue": "asks for the value of a tensor",
}
# One of each kind.
ON_EIGHT_CORES = (
    "KeepArrays", "Packed", "PackedOutput", "PrintLoss", "AppendAndUse", "DequeOfLosses", "MathOfStep", "IfLossLarge", "BestSoFar", "MaskedRows", "UniqueClasses",
    "WriteMasked", "HardNegatives", "AurocExact", "CoinFlip", "Mixup", "LayerDrop", "QueuePointer", "CategoricalLogProb", "F1",
    "PerSampleGradients", "NumpyNoise", "PythonShuffle", "NumpyMean", "FloatOfTensor", "OldSpectralNorm",
)  # fmt: skip
# Divides by differences of gradients, which makes rounding large.
IN_FLOAT64 = ("Lbfgs",)
EQUAL = [name for name in PATTERNS if name not in REFUSED]


@pytest.mark.thin(12)
@pytest.mark.parametrize("name", EQUAL)
def test_a_step_equals_eager_pytorch(name: str) -> None:
    precision = "64-true" if name in IN_FLOAT64 else "32-true"
    ways = (train(name, compiled=way, precision=precision) for way in (False, True))
    assert difference(*ways) == ""


@pytest.mark.thin(8)
@pytest.mark.parametrize("name", ON_EIGHT_CORES)
def test_on_eight_cores(name: str) -> None:
    assert difference(train(name, compiled=False), train(name, compiled=True, devices=8)) == ""


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_compile_is_answered(name: str) -> None:
    with pytest.raises((CaptureError, ValueError, MisconfigurationException), match=REFUSED[name]):
        train(name, compiled=True)
