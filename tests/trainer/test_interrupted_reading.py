"""SIGTERM while a batch is being read ends the wait in the middle of a sample: the run goes on as if it had not come."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, RandomSampler, Sampler, default_collate
from trainer import resuming
from trainer.resuming import SAMPLES, Drawing, Story, Stream, require_equal

import systolic as L
from systolic.exceptions import SIGTERMException

HERE = os.getpid()


def run(*arguments: Any, **options: Any) -> Story:
    return resuming.run(*arguments, val_check_interval=3, **options)


class Bell:
    """Sends SIGTERM to this process when it is struck for the n-th time."""

    def __init__(self, at: int | None) -> None:
        self.at, self.count = at, 0

    def strike(self) -> None:
        self.count += 1
        if self.count == self.at:
            os.kill(HERE, signal.SIGTERM)


class DrawingThenSignal(Drawing):
    """The signal comes after the sample's numbers are drawn, and before it is there."""

    def __init__(self, bell: Bell) -> None:
        super().__init__()
        self.bell = bell

    def __getitem__(self, index: int) -> Any:
        sample = super().__getitem__(index)
        self.bell.strike()
        return sample


class StreamThenSignal(Stream):
    def __init__(self, bell: Bell) -> None:
        super().__init__()
        self.bell = bell

    def __iter__(self) -> Any:
        for sample in super().__iter__():
            self.bell.strike()
            yield sample


class OrderThenSignal(Sampler[int]):
    """The signal comes when the order is drawn."""

    def __init__(self, bell: Bell) -> None:
        self.inner, self.bell = RandomSampler(range(SAMPLES)), bell

    def __len__(self) -> int:
        return SAMPLES

    def __iter__(self) -> Iterator[int]:
        for index in self.inner:
            self.bell.strike()
            yield index


class Collate:
    """The signal comes when the samples are put together, in this process."""

    def __init__(self, bell: Bell) -> None:
        self.bell = bell

    def __call__(self, samples: Any) -> Any:
        torch.rand(())
        self.bell.strike()
        return default_collate(samples)


def loader(kind: str, at: int | None) -> DataLoader[Any]:
    bell = Bell(at)
    if kind == "sample":
        return DataLoader(DrawingThenSignal(bell), batch_size=4, shuffle=True)
    if kind == "own generator":
        return DataLoader(DrawingThenSignal(bell), batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(5))
    if kind == "stream":
        return DataLoader(StreamThenSignal(bell), batch_size=4)
    if kind == "order":
        return DataLoader(Drawing(), batch_size=4, sampler=OrderThenSignal(bell))
    if kind == "order of workers":
        return DataLoader(Drawing(), batch_size=4, sampler=OrderThenSignal(bell), num_workers=2)
    return DataLoader(Drawing(), batch_size=4, shuffle=True, collate_fn=Collate(bell))


def interrupted(path: Path, kind: str, at: int, resumes: Path | None, **options: Any) -> Path:
    """Train until the signal comes; the checkpoint that it leaves."""
    directory = path / f"kept-{at}" if resumes is None else resumes.parent
    keeps = L.callbacks.ModelCheckpoint(directory, every_n_train_steps=1000, save_last=True)
    with pytest.raises(SIGTERMException):
        run(path, loader(kind, at), resumes, extra=(keeps,), enable_checkpointing=True, **options)
    return directory / "last.ckpt"


KINDS = ["sample", "own generator", "stream", "order", "order of workers", "collate"]
INSTANTS = {
    "sample": (2, 6, 25, 31, 47),
    "order": (1, 5, 31, 40),
    "order of workers": (1, 20, 31, 45),
    "collate": (1, 3, 9, 12),
}


@pytest.mark.parametrize(
    ("kind", "compile"),
    [
        *((kind, False) for kind in KINDS),
        *(pytest.param(kind, True, marks=pytest.mark.tables) for kind in ("sample", "order of workers")),
    ],
)
def test_it_goes_on_as_if_the_signal_had_not_come(kind: str, compile: bool, tmp_path: Path) -> None:
    whole = run(tmp_path, loader(kind, None), compile=compile)
    instants = INSTANTS.get(kind, INSTANTS["sample"])
    for at in instants[2:3] if compile else instants:
        checkpoint = interrupted(tmp_path, kind, at, None, compile=compile)
        require_equal(whole, run(tmp_path, loader(kind, None), checkpoint, compile=compile), f"{kind} {at}")


@pytest.mark.parametrize("kind", ["sample", "order", "collate"])
def test_twice(kind: str, tmp_path: Path) -> None:
    whole = run(tmp_path, loader(kind, None))
    first = interrupted(tmp_path, kind, INSTANTS[kind][1], None)
    second = interrupted(tmp_path, kind, 1, first)
    require_equal(whole, run(tmp_path, loader(kind, None), second), kind)
