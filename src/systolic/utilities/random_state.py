"""The host's random generators."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

_PYTHON_WORDS = 625
_NUMPY_WORDS = 624
_WORDS = _PYTHON_WORDS + _NUMPY_WORDS + 3  # of NumPy also its position, and whether it and Python hold a Gaussian
_NUMBERS = 2


@dataclass(frozen=True)
class HostRandomState:
    """The states of PyTorch's, NumPy's and Python's global generators, as bytes: equal states are equal bytes."""

    packed: bytes

    @classmethod
    def current(cls) -> HostRandomState:
        """The states now; takes about 20 us."""
        _, python, python_gauss = random.getstate()
        numpy = np.random.get_state(legacy=False)
        assert isinstance(numpy, dict), "legacy=False gives a dict"
        if numpy["bit_generator"] != "MT19937":
            raise RuntimeError(
                f"NumPy's global generator is a {numpy['bit_generator']}; only its default, MT19937, can be saved. "
                "Give the dataset a generator of its own in place of np.random.set_bit_generator."
            )
        words = np.empty(_WORDS, np.uint32)
        words[:_PYTHON_WORDS] = python
        words[_PYTHON_WORDS:-3] = numpy["state"]["key"]
        words[-3:] = numpy["state"]["pos"], numpy["has_gauss"], python_gauss is not None
        numbers = np.array([python_gauss or 0.0, numpy["gauss"]])
        return cls(words.tobytes() + numbers.tobytes() + torch.get_rng_state().numpy().tobytes())

    def restore(self) -> None:
        """Put the generators into these states."""
        words = np.frombuffer(self.packed, np.uint32, _WORDS)
        numbers = np.frombuffer(self.packed, np.float64, _NUMBERS, words.nbytes)
        position, numpy_holds, python_holds = (int(word) for word in words[-3:])
        python = tuple(int(word) for word in words[:_PYTHON_WORDS])
        random.setstate((3, python, float(numbers[0]) if python_holds else None))
        key = words[_PYTHON_WORDS:-3]
        np.random.set_state(("MT19937", key, position, numpy_holds, float(numbers[1])))
        torch.set_rng_state(torch.frombuffer(bytearray(self.packed[words.nbytes + numbers.nbytes :]), dtype=torch.uint8))

    def as_tensor(self) -> torch.Tensor:
        """For checkpoints."""
        return torch.frombuffer(bytearray(self.packed), dtype=torch.uint8)

    @classmethod
    def of_tensor(cls, tensor: torch.Tensor) -> HostRandomState:
        """From a checkpoint."""
        return cls(tensor.numpy().tobytes())


@contextlib.contextmanager
def isolated_random_state() -> Iterator[None]:
    """Afterwards the generators of PyTorch, NumPy and Python are in the state in which they were."""
    before = HostRandomState.current()
    try:
        yield
    finally:
        before.restore()
