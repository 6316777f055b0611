"""What was compiled: the StableHLO text of a run's programs and the dtypes in it, and what XLA made of them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import jax
import pytest
import torch

import systolic as L
from systolic.trainer._step_engine import innermost


class Programs(L.Callback):
    """Keeps the StableHLO text of every program of the run, by the stage in which it was there."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def on_train_end(self, trainer: Any, module: Any) -> None:
        self._keep(trainer)

    def on_predict_end(self, trainer: Any, module: Any) -> None:
        self._keep(trainer)

    def _keep(self, trainer: Any) -> None:
        self.texts = [
            _text(entry.program, entry.signature[1], engine.last_numbers)
            for engine in map(innermost, trainer.run.engines.values())
            for entry in engine._entries
            if not entry.pending
        ]

    @property
    def text(self) -> str:
        """All of them."""
        return "\n".join(self.texts)


def _text(program: Any, leaves: Any, numbers: Any) -> str:
    with jax.enable_x64(True):
        shapes = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in leaves]
        return program.function.lower(*program.arguments(shapes, numbers)).as_text()


def operand_dtypes(text: str, op: str) -> set[str]:
    """The element types of the operands of every `op` ("dot_general", "convolution", "reduce")."""
    lines = [line for line in text.splitlines() if re.search(rf"stablehlo\.{op}\b", line)]
    found = (re.findall(r"tensor<(?:\d+x)*(\w+)>", line.rsplit(" : (", 1)[1].split(") -> ")[0]) for line in lines)
    return {dtype for operands in found for dtype in operands}


def product_dtypes(text: str) -> set[str]:
    """The element types of the operands of products, without those with ones, which are sums."""
    ones = set(re.findall(r"(%\w+) = stablehlo\.constant dense<1\.0+(?:e\+00)?> :", text))
    ones |= {name for name, source in re.findall(r"(%\w+) = stablehlo\.broadcast_in_dim (%\w+),", text) if source in ones}
    lines = [line for line in text.splitlines() if "stablehlo.dot_general" in line]
    sums = [line for line in lines if re.search(r"dot_general (%\w+),", line)[1] in ones]  # pyright: ignore[reportOptionalSubscript]
    return operand_dtypes("\n".join(line for line in lines if line not in sums), "dot_general")


def result_dtypes(text: str, op: str) -> set[str]:
    """The element types of the results of every `op`."""
    lines = [line for line in text.splitlines() if re.search(rf"stablehlo\.{op}\b", line)]
    return {dtype for line in lines for dtype in re.findall(r"tensor<(?:\d+x)*(\w+)>", line.rsplit(" -> ", 1)[1])}


def summed_dtypes(text: str) -> set[str]:
    """The element types in which sums are taken."""
    lines = [line for line in text.splitlines() if "stablehlo.reduce" in line and "applies stablehlo.add" in line]
    found = (re.findall(r"tensor<(?:\d+x)*(\w+)>", line.rsplit(" : (", 1)[1].split(") -> ")[0]) for line in lines)
    return {dtype for operands in found for dtype in operands}


def float_dtypes(text: str) -> set[str]:
    """Every floating element type that occurs."""
    return set(re.findall(r"tensor<(?:\d+x)*(f16|bf16|f32|f64)>", text))


@contextlib.contextmanager
def optimized_programs() -> Iterator[list[str]]:
    """The optimized HLO of every program that is compiled inside the block."""
    texts: list[str] = []
    compile_program = jax.stages.Lowered.compile

    def noting(self: jax.stages.Lowered, *args: Any, **kwargs: Any) -> jax.stages.Compiled:
        compiled = compile_program(self, *args, **kwargs)
        texts.append(compiled.as_text() or "")
        return compiled

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax.stages.Lowered, "compile", noting)
        yield texts


def collective_sizes(texts: list[str], kind: str) -> list[int]:
    """How many numbers the (first) results of the collectives of a kind have in optimized HLO."""
    shapes = [shape for text in texts for shape in re.findall(rf" = \(?\w+\[([\d,]+)\].* {kind}\(", text)]
    return [torch.Size(map(int, shape.split(","))).numel() for shape in shapes]
