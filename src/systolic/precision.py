"""Precisions of `Trainer(precision=...)`: the dtype that parameters are kept in, and the one that a step computes in."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from .data import flatten_batch, unflatten_batch
from .data._batch import BatchLeaf
from .exceptions import MisconfigurationException
from .runtime import default_matmul_precision
from .utilities._suggest import suggest

MATMUL_PRECISIONS = ("default", "high", "highest")

# PyTorch's default dtype belongs to the whole process. While a step runs (or is traced) under another one, the thread
# that fetches batches must not create tensors.
_DEFAULT_DTYPE = threading.RLock()


@dataclass(frozen=True)
class Precision:
    """One precision.

    Attributes:
        name: Lightning's name of what is computed: "32-true", "bf16-true", "bf16-mixed" or "64-true".
        parameters: the dtype that parameters, buffers and batches are converted to; None leaves them as they are.
        autocast: the dtype of the ops on autocast's list; None for no autocast.

    Example:
        >>> from systolic.precision import resolve_precision
        >>> resolve_precision("bf16-true", "tpu").parameters
        torch.bfloat16
    """

    name: str
    parameters: torch.dtype | None = None
    autocast: torch.dtype | None = None

    def convert_module(self, module: torch.nn.Module) -> None:
        """Give floating parameters and buffers the precision's dtype; parameter objects, and so ties, stay.

        Complex ones stay what they are: as real numbers they would lose their imaginary parts.
        """
        dtype = self.parameters
        if dtype is not None:
            module._apply(lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor)

    @property
    def precision(self) -> str:
        """The name, where Lightning's plugins have it."""
        return self.name

    @property
    def device(self) -> str:
        """Type of the device that PyTorch code sees, which autocast is asked for: "cpu"."""
        return "cpu"

    def convert_input(self, batch: object) -> Any:
        """The batch with its floating tensors and arrays in the precision's dtype; arrays become tensors then."""
        if self.parameters is None:
            return batch
        leaves, spec = flatten_batch(batch)
        return unflatten_batch(spec, [_cast(leaf, self.parameters) for leaf in leaves])

    @contextlib.contextmanager
    def step_context(self) -> Iterator[None]:
        """Around `training_step` and its siblings, as in Lightning: autocast, or the default dtype of new tensors."""
        with _autocast_of_other_accelerators():
            if self.autocast is not None:
                with torch.autocast("cpu", self.autocast, cache_enabled=False):
                    yield
            else:
                with self.init_context():
                    yield

    @contextlib.contextmanager
    def init_context(self) -> Iterator[None]:
        """Tensors created inside without a dtype get the parameters' one."""
        if self.parameters is None:
            yield
            return
        with _DEFAULT_DTYPE:
            before = torch.get_default_dtype()
            torch.set_default_dtype(self.parameters)
            try:
                yield
            finally:
                torch.set_default_dtype(before)

    @contextlib.contextmanager
    def module_init_context(self, empty_init: bool = False) -> Iterator[None]:
        """Modules created inside have the precision's dtype; with `empty_init` their weights are left uninitialised."""
        with self.init_context(), _NoInitialisation() if empty_init else contextlib.nullcontext():
            yield

    def undisturbed(self, batches: Iterator[Any]) -> Iterator[Any]:
        """The batches, each fetched while no step holds another default dtype."""
        return batches if self.parameters is None else _exclusive(batches)


_ALL = (
    Precision("32-true"),
    Precision("bf16-true", parameters=torch.bfloat16),
    Precision("bf16-mixed", autocast=torch.bfloat16),
    Precision("64-true", parameters=torch.float64),
)
PRECISIONS = {precision.name: precision for precision in _ALL}

# spellings that say the same
_SYNONYMS = {None: "32-true", 32: "32-true", "32": "32-true", 64: "64-true", "64": "64-true"}
# Asked for float16, every accelerator computes in bfloat16, as TPUs do: a script computes the same everywhere, and
# float16 would need a loss scale.
_BFLOAT16_INSTEAD = {"16-true": "bf16-true", "16-mixed": "bf16-mixed"}


def resolve_precision(precision: str | int | None, platform: str) -> Precision:
    """Precision that a request means on a platform.

    Args:
        precision: "32-true" (also 32, "32", None), "16-true" or "bf16-true", "16-mixed" or "bf16-mixed", "64-true".
        platform: "tpu", "gpu" or "cpu".

    Raises:
        MisconfigurationException: an unknown precision, or one that the platform lacks.

    Example:
        >>> from systolic.precision import resolve_precision
        >>> resolve_precision("16-true", "tpu").name
        'bf16-true'
    """
    known = (*PRECISIONS, *_BFLOAT16_INSTEAD)
    hashable = isinstance(precision, str | int) or precision is None
    name = _SYNONYMS.get(precision, precision) if hashable and not isinstance(precision, bool) else precision
    if name not in known:
        raise MisconfigurationException(
            f"Invalid value for argument `precision`. Expected one of {', '.join(map(repr, known))}. "
            f"Received: {precision!r}.{suggest(str(precision), known)}"
        )
    if name in _BFLOAT16_INSTEAD:
        if platform != "tpu":
            warnings.warn(
                f"precision={name!r} computes in bfloat16, as on a TPU; there is no float16 here. To say so, write "
                f"precision={_BFLOAT16_INSTEAD[name]!r}.",
                stacklevel=4,
            )
        name = _BFLOAT16_INSTEAD[name]
    if name == "64-true" and platform != "cpu":
        raise MisconfigurationException(
            f'precision="64-true" runs on the CPU only: {_WHY_NO_FLOAT64[platform]} Use accelerator="cpu", or '
            'precision="32-true" with matmul_precision="highest".'
        )
    return PRECISIONS[name]


_WHY_NO_FLOAT64 = {
    "tpu": "a TPU has no float64 units.",
    "gpu": "systolic does not compute in float64 on a GPU.",
}


def resolve_matmul_precision(requested: str | None, platform: str) -> str:
    """How exact float32 products of matrices and convolutions are; the word that JAX understands.

    On a TPU "default" rounds the operands to bfloat16 (one pass), "high" takes three passes, "highest" six, which is
    float32 accuracy. On a GPU "default" and "high" allow TensorFloat-32. On a CPU all three are float32
    (https://docs.jax.dev/en/latest/jax.lax.html#jax.lax.Precision).

    Args:
        requested: "default", "high" or "highest"; None is "default" on TPU and CPU, and on a GPU what
            `torch.get_float32_matmul_precision()` says ("highest" unless it was set).
        platform: "tpu", "gpu" or "cpu".

    Raises:
        MisconfigurationException: another word.
    """
    if requested is None:
        return default_matmul_precision(platform)
    if requested not in MATMUL_PRECISIONS:
        raise MisconfigurationException(
            f"Invalid value for argument `matmul_precision`. Expected one of {', '.join(map(repr, MATMUL_PRECISIONS))}. "
            f"Received: {requested!r}.{suggest(str(requested), MATMUL_PRECISIONS)}"
        )
    return requested


_AUTOCAST_INIT = torch.autocast.__init__
_AUTOCAST_LOCK = threading.Lock()
_autocast_threads: Counter[int] = Counter()
"""By thread: how many blocks of `_autocast_of_other_accelerators` it is in. PyTorch's function is replaced meanwhile."""


@contextlib.contextmanager
def _autocast_of_other_accelerators() -> Iterator[None]:
    """`torch.autocast("cuda")` and `("xla")` in a step mean the devices of the run.

    PyTorch sees CPU tensors there, and would leave the ops of such a block as they are: `enabled=False` around a loss
    would be passed over in silence. float16 is bfloat16 there as well. Other threads keep PyTorch's meaning.
    """
    global _autocast_threads
    thread = threading.get_ident()
    with _AUTOCAST_LOCK:
        _autocast_threads[thread] += 1
        torch.autocast.__init__ = _autocast_init
    try:
        yield
    finally:
        with _AUTOCAST_LOCK:
            _autocast_threads[thread] -= 1
            _autocast_threads = +_autocast_threads  # forgets the threads that have left
            if not _autocast_threads:
                torch.autocast.__init__ = _AUTOCAST_INIT


def _autocast_init(
    self: torch.autocast,
    device_type: str,
    dtype: torch.dtype | None = None,
    enabled: bool = True,
    cache_enabled: bool | None = None,
) -> None:
    if device_type in ("cuda", "xla") and _autocast_threads[threading.get_ident()]:
        device_type, dtype = "cpu", torch.bfloat16 if dtype in (None, torch.float16) else dtype
    _AUTOCAST_INIT(self, device_type, dtype, enabled, cache_enabled)


class _NoInitialisation(TorchFunctionMode):
    """Skips the functions of `torch.nn.init`: weights that a checkpoint will fill need no values."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init":
            return kwargs.get("tensor", args[0] if args else None)
        return func(*args, **kwargs)


def _cast(leaf: BatchLeaf, dtype: torch.dtype) -> Any:
    if isinstance(leaf, np.ndarray):
        return torch.from_numpy(leaf).to(dtype) if leaf.dtype.kind == "f" else leaf
    return leaf.to(dtype) if leaf.is_floating_point() else leaf


def _exclusive(batches: Iterator[Any]) -> Iterator[Any]:
    fetch: Callable[[], Any] = batches.__next__
    while True:
        with _DEFAULT_DTYPE:
            try:
                batch = fetch()
            except StopIteration:
                return
        yield batch
