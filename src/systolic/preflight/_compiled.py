"""Compile for devices that are not here, and keep what the compiler said: in memory, and on disk for the next time."""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import re
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
from jax.errors import JaxRuntimeError

from .._collector import collector_off
from ..utilities._host_memory import return_freed_memory
from ..utilities._private import make_directories
from ._kept import kept_at


@dataclass(frozen=True)
class Compiled:
    """Answer of the TPU compiler about one program.

    Attributes:
        hlo: the optimized program, with the compiler's estimates in it; empty when it was refused.
        memory: bytes on each device: "arguments", "outputs", "aliased" (outputs that lie where arguments lay),
            "temporaries", "code".
        flops: floating point operations on each device, XLA's count; of Pallas kernels, what their authors state.
        bytes_accessed: bytes that instructions read and write on each device, XLA's count.
        required_bytes: HBM that a refused program would need on each device; None when it fits.
        available_bytes: HBM that the compiler says there is; None when it did not say.
        refusal: the compiler's words.
        products: how many matrix products and convolutions the program asks for, by the type of what they multiply
            ("bf16", "f32", "bf16 x f32").
        seconds: how long compiling took.
        was_cached: whether that was at an earlier time.
    """

    hlo: str
    memory: dict[str, int]
    flops: float
    bytes_accessed: float
    required_bytes: int | None
    available_bytes: int | None
    refusal: str
    seconds: float
    products: dict[str, int]
    was_cached: bool = False


class Lowered:
    """A program for devices that need not be here, ready to be compiled.

    Lowering runs Python and keeps to one thread; compiling several programs at once is possible.

    Args:
        function: from `jax.jit`.
        arguments: trees of `jax.ShapeDtypeStruct` with shardings.
        target: names the topology; equal programs for different topologies are different programs.
        wide: whether JAX's 64-bit types are switched on meanwhile, as programs that stand for PyTorch's need them.
    """

    def __init__(self, function: jax.stages.Wrapped, arguments: tuple[Any, ...], target: str, *, wide: bool = True) -> None:
        with jax.enable_x64(wide), collector_off():
            self._lowered = function.lower(*arguments)
        # with the names of ops, which hold lines of the user's code
        text = self._lowered.as_text(debug_info=True)
        self._products = _product_types(text)
        self._path = kept_at(text, f"{_FORMAT} {target}")

    def compile(self) -> Compiled:
        """Compile it, or read what the compiler said about an equal program before.

        Raises:
            JaxRuntimeError: the compiler failed for another reason than a lack of HBM.
        """
        if self._path is not None and self._path.exists():
            return _read(self._path)
        found = self._compile_now()
        return_freed_memory()
        if self._path is not None:
            _write(self._path, found)
        return found

    def _compile_now(self) -> Compiled:
        started = time.perf_counter()
        try:
            compiled, text = compile_and_dump(self._lowered)
        except JaxRuntimeError as error:
            found = _refused(str(error), time.perf_counter() - started, self._products)
            if found is None:
                raise
            return found
        return _described(compiled, text, time.perf_counter() - started, self._products)


def _described(compiled: Any, hlo: str, seconds: float, products: dict[str, int]) -> Compiled:
    stats, cost = compiled.memory_analysis(), compiled.cost_analysis()
    memory = {
        "arguments": stats.argument_size_in_bytes,
        "outputs": stats.output_size_in_bytes,
        "aliased": stats.alias_size_in_bytes,
        "temporaries": stats.temp_size_in_bytes,
        "code": stats.generated_code_size_in_bytes,
    }
    return Compiled(hlo, memory, cost.get("flops", 0.0), cost.get("bytes accessed", 0.0), None, None, "", seconds, products)


_PRODUCT = re.compile(
    r"stablehlo\.(?:dot_general|convolution)\b(?P<how>[^\n]*): "
    r"\(tensor<(?:\d+x)*(?P<left>\w+)>, tensor<(?:\d+x)*(?P<right>\w+)>\) -> tensor<(?P<sizes>(?:\d+x)*)\w+>"
)
_BATCHING = re.compile(r"batching_dims = \[([\d, ]*)\]")


def _product_types(program: str) -> dict[str, int]:
    """Before optimization: afterwards a TPU multiplies bfloat16 whatever was asked for."""
    found = [match for match in _PRODUCT.finditer(program) if not _is_sum_of_rows(match)]
    pairs = [(match["left"], match["right"]) for match in found]
    return dict(Counter(left if left == right else f"{left} x {right}" for left, right in pairs))


def _is_sum_of_rows(product: re.Match[str]) -> bool:
    """Whether rows are multiplied by rows and summed: a reduction, of which the matrix unit does nothing.

    The backward of JAX's attention kernel prepares itself with one, in float32.
    """
    batching = _BATCHING.search(product["how"])
    return batching is not None and batching[1].count(",") + 1 == product["sizes"].count("x")


_SIZES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_FIGURES = (
    re.compile(r"\((?P<used>[\d.]+)(?P<u>[KMGT]?)\) exceeds available HBM \((?P<has>[\d.]+)(?P<h>[KMGT]?)\)"),
    re.compile(r"Used (?P<used>[\d.]+)(?P<u>[KMGT]?) of (?P<has>[\d.]+)(?P<h>[KMGT]?) hbm"),
)


def _refused(message: str, seconds: float, products: dict[str, int]) -> Compiled | None:
    """The compiler's own figures from its words when a program does not fit; None for other errors."""
    if "RESOURCE_EXHAUSTED" not in message:
        return None
    match = next((m for pattern in _FIGURES if (m := pattern.search(message))), None)
    required = None if match is None else int(float(match["used"]) * _SIZES[match["u"]])
    available = None if match is None else int(float(match["has"]) * _SIZES[match["h"]])
    return Compiled("", {}, 0.0, 0.0, required, available, message.strip(), seconds, products)


_FORMAT = "4"
"""Changes when `Compiled` does, or how it is made."""


def _read(path: Path) -> Compiled:
    with gzip.open(path, "rt") as file:
        return Compiled(**{**json.load(file), "was_cached": True})


def _write(path: Path, found: Compiled) -> None:
    make_directories(path.parent)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(gzip.compress(json.dumps(dataclasses.asdict(found)).encode(), compresslevel=1))
    os.replace(file.name, path)  # whole or not there: another process may read it


def compile_and_dump(lowered: jax.stages.Lowered) -> tuple[Any, str]:
    """Compile for TPUs, and have libtpu write the optimized program, which takes no measurable time.

    `Compiled.as_text()` is not for libtpu's programs: libtpu may lead jaxlib. Transfers that a TPU starts before all of their
    operands are there are refused by jaxlib 0.10.2 ("async-update instruction should have 1 operands but sees 2"), with a
    stack trace on standard error, though the program never runs here.

    Args:
        lowered: a `jax.stages.Lowered` for devices of a TPU topology.

    Returns:
        The `jax.stages.Compiled`, and the text with the compiler's estimates.

    Raises:
        JaxRuntimeError: the compiler refused the program.
    """
    with tempfile.TemporaryDirectory(prefix="systolic-dump-") as directory:
        compiled = lowered.compile(compiler_options={"xla_dump_to": directory, "xla_dump_hlo_as_text": True})
        # of several dumps the last is the one that holds the estimates
        [found] = Path(directory).glob("*.after_codegen.txt")
        return compiled, found.read_text()
