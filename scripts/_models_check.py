"""Train a model of the sweep by systolic and by eager PyTorch from the same weights, and say how the two differ."""

from __future__ import annotations

import dataclasses
import re
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import jax
import torch
from _models_row import ROWS, Batch, LossOf, Row
from torch import nn
from torch.utils._pytree import tree_map
from torch.utils.data import DataLoader

import systolic as L
from systolic.compiler.driver._engine import Engine

STEPS = 3
# AdamW divides by the size of a gradient: with its usual eps, what rounding leaves of a gradient that is zero would count
LEARNING_RATE, EPS = 1e-3, 1e-4
# a weight moves by up to STEPS * LEARNING_RATE; a gradient of the wrong sign is 300 of these apart
RTOL = 1e-5
# what rounding may be: so many times eager PyTorch's own distance from the float64 result
ROUNDING = 4.0
# both sides in float64, where nothing that is told apart here is rounding
EXACT = 1e-8
# what rounding may be there, of eager float32's distance from the float64 result; the precisions are 2e-9 apart
SHARE_IN_FLOAT64 = 1e-6


@dataclass
class Result:
    """What became of one model.

    Attributes:
        outcome: "equal", "lowered" (traced and lowered to XLA, and not compiled: the sweep was told so), "refused" (systolic
            says why), "crashed" (an error that nobody can act on), "wrong", or "no oracle" (the row is at fault: eager PyTorch
            fails, or draws random numbers).
        reason: the error's first lines, or what differs.
        where: the line of the user's code that a refusal names; the innermost of systolic's of a crash.
        captures: how often the step was traced; once is right.
        remark: why results that are further apart than others are equal all the same.
        details: the error with its traceback.
        date: when it ran.
    """

    name: str
    family: str
    outcome: str
    reason: str = ""
    where: str = ""
    parameters: int = 0
    captures: int = 0
    trace_seconds: float = 0.0
    compile_seconds: float = 0.0
    seconds: float = 0.0
    remark: str = ""
    details: str = ""
    date: str = ""


@dataclass
class Trained:
    """What three steps gave: losses, and every tensor of the model."""

    losses: list[float]
    state: dict[str, torch.Tensor]


class Module(L.LightningModule):
    """The model as the user would train it."""

    def __init__(self, model: nn.Module, loss: LossOf) -> None:
        super().__init__()
        self.model = model
        self.loss = loss

    def training_step(self, batch: Batch) -> torch.Tensor:
        """One batch."""
        loss = self.loss(self.model, batch)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The same as in eager PyTorch."""
        return optimizer_of(self.model)


class Losses(L.Callback):
    """Keep the loss of every step."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, *_: object) -> None:
        """After each step."""
        self.seen.append(float(outputs["loss"]))


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW over what is trained."""
    return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=LEARNING_RATE, eps=EPS)


def built(row: Row) -> tuple[nn.Module, list[Batch]]:
    """The model with its initial weights and the batches: always the same ones."""
    torch.manual_seed(0)
    model = row.build().train()
    torch.manual_seed(1)
    return model, [row.batch(model) for _ in range(STEPS)]


def eager(row: Row, dtype: torch.dtype = torch.float32, seed: int = 2) -> Trained:
    """Train in plain PyTorch.

    Args:
        row: the model.
        dtype: of weights and batches; float64 tells what rounding did.
        seed: the generator's while training, which no model of the sweep may use.
    """
    model, batches = built(row)
    model = model.to(dtype)
    optimizer, losses = optimizer_of(model), []
    torch.manual_seed(seed)
    default = torch.get_default_dtype()
    torch.set_default_dtype(dtype)  # of what a loss makes for itself, as Lightning's "64-true" has it
    try:
        for batch in batches:
            loss = row.loss(model, tree_map(lambda x: _as(x, dtype), batch))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    finally:
        torch.set_default_dtype(default)
    return Trained(losses, _state(model))


def compiled(row: Row, devices: int = 1, dtype: torch.dtype = torch.float32) -> tuple[Trained, Sequence[Any]]:
    """Train by `Trainer.fit`; also its compilations."""
    model, batches = built(row)
    batches = [tree_map(lambda x: _as(x, dtype), batch) for batch in batches]
    recorder = Losses()
    trainer = L.Trainer(
        accelerator="cpu",
        devices=devices,
        precision="64-true" if dtype == torch.float64 else "32-true",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[recorder],
    )
    trainer.fit(Module(model.to(dtype), row.loss), DataLoader(_Batches(batches), batch_size=None))
    return Trained(recorder.seen, _state(model)), trainer.compiles


class _Batches(torch.utils.data.IterableDataset[Batch]):
    """Batches that are ready."""

    def __init__(self, batches: Sequence[Batch]) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[Batch]:
        return iter(self.batches)


class _LoweredError(Exception):
    """The step has become a program of XLA's, which nobody compiles."""


def lowered(row: Row, result: Result) -> None:
    """Trace and lower the step, which takes a tenth of the time that it takes to compile it."""

    def lower(engine: Engine, function: Any, arguments: Any, reason: str, fingerprint: str, trace_seconds: float = 0.0) -> None:
        with jax.enable_x64(True):
            function.lower(*arguments)
        result.captures, result.trace_seconds = 1, round(trace_seconds, 1)
        raise _LoweredError

    with mock.patch.object(Engine, "compiled", lower):
        try:
            compiled(row)
        except _LoweredError:
            result.outcome = "lowered"
        except Exception as error:
            _failed(result, _kind(error), error)


def check(name: str, lower_only: bool = False) -> Result:
    """Train one model of the table both ways.

    Args:
        name: the row.
        lower_only: trace and lower the step, and compare nothing.
    """
    row = ROWS[name]
    result = Result(name, row.family, "equal")
    started = time.perf_counter()
    if lower_only:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                result.parameters = sum(p.numel() for p in built(row)[0].parameters())
            except Exception as error:
                _failed(result, "no oracle", error)
            else:
                lowered(row, result)
        return dataclasses.replace(result, seconds=round(time.perf_counter() - started, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what libraries say of themselves
        try:
            wanted = eager(row)
            result.parameters = sum(p.numel() for p in built(row)[0].parameters())
            if difference(eager(row, seed=3), wanted):
                raise ValueError("The model draws random numbers while training; eager PyTorch is no exact oracle.")
        except Exception as error:
            _failed(result, "no oracle", error)
        else:
            _compare(row, wanted, result)
    return dataclasses.replace(result, seconds=round(time.perf_counter() - started, 1))


def _compare(row: Row, wanted: Trained, result: Result) -> None:
    try:
        got, compiles = compiled(row)
    except Exception as error:
        _failed(result, _kind(error), error)
        return
    result.captures = len(compiles)
    result.trace_seconds = round(sum(c.trace_seconds for c in compiles), 1)
    result.compile_seconds = round(sum(c.compile_seconds for c in compiles), 1)
    if result.captures > 1:
        result.remark = "; ".join(c.reason for c in compiles[1:])
    if not (found := difference(wanted, got)):
        return
    exact = eager(row, torch.float64)
    if as_right(exact, wanted, got):
        result.remark = f"rounding: {found}"
    elif equal_in_float64(exact, wanted, compiled(row, dtype=torch.float64)[0]):
        result.remark = f"equal in float64; rounding: {found}"
    else:
        result.outcome, result.reason = "wrong", found


def _kind(error: Exception) -> str:
    return "refused" if type(error).__module__.partition(".")[0] == "systolic" else "crashed"


def _failed(result: Result, outcome: str, error: Exception) -> None:
    lines = str(error).strip().splitlines() or [""]
    result.outcome = outcome
    result.reason = lines[0] if outcome == "refused" else f"{type(error).__name__}: {lines[0]}"
    used = re.search(r"^\s*used at (.*)$", str(error), re.MULTILINE)
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f"{f.filename.partition('/src/')[2]}:{f.lineno} in {f.name}" for f in frames if "/src/systolic/" in f.filename]
    result.where = _short(used[1]) if used else (ours[-1] if ours else "")
    result.details = "".join(traceback.format_exception(error))[-6000:]


def _short(line: str) -> str:
    return line.rpartition("site-packages/")[2]


def difference(want: Trained, got: Trained, allowed: float = RTOL) -> str:
    """What is not equal; empty where all is.

    Args:
        want: eager PyTorch's.
        got: systolic's.
        allowed: distance of losses and weights, relative to their size; of weights below 1 absolute.
    """
    if not _same_losses(got.losses, want.losses, allowed):
        return f"losses {_rounded(want.losses)} became {_rounded(got.losses)}"
    far = {
        name: float((got.state[name] - value).abs().max())
        for name, value in want.state.items()
        if _far(got.state[name], value, allowed)
    }
    worst = sorted(far, key=far.__getitem__, reverse=True)
    return f"{len(far)} tensors, {worst[0]} by {far[worst[0]]:.1e}" if far else ""


def equal_in_float64(exact: Trained, want: Trained, got: Trained) -> bool:
    """Whether two runs in float64 are equal, but for rounding.

    Where three steps make 3 of float32's rounding (statistics of a detector whose second loss is 18), they make 1e-7 of
    float64's, which is 5e8 times as fine.

    Args:
        exact: eager PyTorch's, in float64.
        want: eager PyTorch's, in float32.
        got: systolic's, in float64.
    """
    return not difference(exact, got, EXACT) or as_right(exact, want, got, SHARE_IN_FLOAT64, EXACT)


def as_right(exact: Trained, want: Trained, got: Trained, share: float = ROUNDING, allowed: float = RTOL) -> bool:
    """Whether results are as near to those of float64 as eager float32's are, or nearer, by `share`."""
    for name, value in exact.state.items():
        if not value.is_floating_point():
            if not torch.equal(value, got.state[name]):
                return False
            continue
        ours, theirs = (float((t.state[name].double() - value).abs().max()) for t in (got, want))
        if not ours <= share * theirs + allowed + allowed * float(value.abs().max()):
            return False
    pairs = zip(exact.losses, want.losses, got.losses, strict=True)
    return all(abs(g - e) <= share * abs(w - e) + allowed * abs(e) for e, w, g in pairs)


def _same_losses(got: Sequence[float], want: Sequence[float], allowed: float = RTOL) -> bool:
    return all(abs(a - b) <= allowed * max(abs(b), 0.1) for a, b in zip(got, want, strict=True))


def _far(got: torch.Tensor, want: torch.Tensor, allowed: float) -> bool:
    if not want.is_floating_point():
        return not torch.equal(got, want)
    return not torch.allclose(got, want, rtol=allowed, atol=allowed)


def _rounded(losses: Sequence[float]) -> list[float]:
    return [float(f"{loss:.6g}") for loss in losses]


def _as(value: Any, dtype: torch.dtype) -> Any:
    return value.to(dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def _state(model: nn.Module) -> dict[str, torch.Tensor]:
    tensors = [*model.named_parameters(), *model.named_buffers()]
    return {name: tensor.detach().cpu().clone() for name, tensor in tensors if not tensor.is_complex()}
