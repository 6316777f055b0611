"""Several training loops timed in turn, so that what else the machine does meets all of them."""

from __future__ import annotations

import json
import logging
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch


class Epochs(Protocol):
    """A training loop that runs an epoch when it is told to, and says how long that took."""

    def epoch(self) -> float: ...


def medians_in_turn(contenders: Mapping[str, Epochs], rounds: int, warm_ups: int = 1) -> dict[str, float]:
    """The median of each one's epochs over rounds, in each of which all of them take their turn.

    Args:
        contenders: by name.
        rounds: how many count.
        warm_ups: epochs before these, in which programs are compiled.
    """
    for contender in contenders.values():
        for _ in range(warm_ups):
            contender.epoch()
    times: dict[str, list[float]] = {who: [] for who in contenders}
    for _ in range(rounds):
        for who, contender in contenders.items():
            times[who].append(contender.epoch())
    return {who: statistics.median(found) for who, found in times.items()}


class Contender:
    """A process that trains (`fit_in_turns`, `loop_in_turns`), an epoch at a time.

    Attributes:
        others: what its last answer held beside the time.
    """

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], stderr: int | None = None) -> None:
        command, pipe = [sys.executable, *arguments], subprocess.PIPE
        kept = {"JAX_ENABLE_COMPILATION_CACHE": "false"}
        self._process = subprocess.Popen(
            command, env={**os.environ, **kept, **environment}, text=True, stdin=pipe, stdout=pipe, stderr=stderr
        )
        self.others: list[float] = []

    def epoch(self) -> float:
        """Milliseconds a step."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("go on\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a contender ended with {self._process.wait()}")
        milliseconds, *self.others = json.loads(line)
        return milliseconds

    def end(self) -> None:
        """No more turns."""
        self._process.kill()
        self._process.wait()


def medians_of_processes(contenders: Mapping[str, Contender], rounds: int) -> dict[str, float]:
    """Median milliseconds a step of each, which end then; the first two epochs, which compile, do not count."""
    try:
        return medians_in_turn(contenders, rounds, warm_ups=2)
    finally:
        for contender in contenders.values():
            contender.end()


def fit_in_turns(
    framework: Any, module: Any, loader: Any, measured: Callable[[], Sequence[float]] = tuple, **options: Any
) -> None:
    """Fit; after each line of the standard input one epoch, whose milliseconds a step and `measured` are the answer.

    Args:
        framework: systolic, or Lightning.
        module: its LightningModule.
        loader: of whose batches each is a step.
        measured: called at the end of every epoch.
        options: for its Trainer; one device, unless they say otherwise.
    """
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)

    class Turns(framework.Callback):  # type: ignore[misc]
        def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
            trainer.should_stop = not sys.stdin.readline()
            self.started = time.perf_counter()

        def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
            smallest = min(module.parameters(), key=torch.Tensor.numel)
            smallest.sum().item()  # host sync: all of the epoch's steps are done
            answer([(time.perf_counter() - self.started) / len(loader) * 1e3, *measured()])

    answer = _answers()
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    framework.Trainer(max_epochs=-1, callbacks=[Turns()], **quiet, **{"devices": 1, **options}).fit(module, loader)


def loop_in_turns(epoch: Callable[[], None], steps: int) -> None:
    """After each line of the standard input an epoch, whose milliseconds a step are the answer.

    Args:
        epoch: trains for so many steps, and returns when they are done.
        steps: of an epoch.
    """
    answer = _answers()
    while sys.stdin.readline():
        started = time.perf_counter()
        epoch()
        answer([(time.perf_counter() - started) / steps * 1e3])


def _answers() -> Callable[[Sequence[float]], None]:
    """What writes an answer; what the frameworks print goes to the standard error from here on."""
    answers = os.dup(1)
    os.dup2(2, 1)

    def answer(numbers: Sequence[float]) -> None:
        os.write(answers, (json.dumps(numbers) + "\n").encode())

    return answer
