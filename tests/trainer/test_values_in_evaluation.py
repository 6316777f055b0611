"""Evaluation steps whose Python code wants values: they see what they see under Lightning, and their modules are programs."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from beside_lightning import beside_lightning, loader, module_of, trainer_of
from trainer.evaluation_bodies import BODIES, WORDS, held, methods_of, prepare

import systolic

T = torch.Tensor


@pytest.mark.parametrize("devices", [1, 8])
@pytest.mark.parametrize("name", BODIES)
def test_sees_what_it_sees_under_lightning(name: str, devices: int, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    places = iter("ab")
    folder = lambda module: prepare(module, tmp_path / next(places))  # noqa: E731
    beside_lightning(methods_of(name), held, prepare=folder, devices=devices)
    told = "validation_step runs on the host, and each module that it calls as a program" in caplog.text
    assert told is (name not in ("to_the_end_word", "counted")), "a few ways through the step have a program each"


def _keep_words(module: Any, batch: Any, i: int) -> list[str]:
    return [WORDS[k] for k in json.loads(json.dumps(module(batch[0]).argmax(1).tolist()))]


def test_modules_are_programs_in_tests_and_predictions() -> None:
    module = module_of(systolic, {"test_step": _keep_words, "predict_step": _keep_words}, lambda module: None)
    trainer = trainer_of(systolic)
    trainer.fit(module, loader(48, 1))
    trainer.test(module, loader(36, 2), verbose=False)
    compiled = sum(one.is_new_executable for one in trainer.compiles)
    assert compiled == 2, f"the module, for batches of 16 and the last one of 4: {trainer.compiles}"
    with torch.no_grad():
        module.eval()
        expected = [_keep_words(module, batch, 0) for batch in loader(36, 2)]
    assert trainer.predict(module, loader(36, 2)) == expected


def test_a_module_that_wants_values_is_run_and_what_it_calls_are_programs() -> None:
    class Words(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 3)

        def forward(self, x: T) -> list[str]:
            return [WORDS[k] for k in sorted(Counter(self.layer(x).argmax(1).tolist()))]

    def prepare(module: Any) -> None:
        module.words = Words()

    def validation_step(module: Any, batch: Any, i: int) -> None:
        module.seen.append(module.words(batch[0]))

    module = beside_lightning({"validation_step": validation_step}, lambda module: module.seen, prepare=prepare)
    assert module.seen


def test_an_error_of_the_users_stays_his() -> None:
    def validation_step(module: Any, batch: Any, i: int) -> None:
        json.dumps(module(batch[0]).tolist())
        raise KeyError("mine")

    module = module_of(systolic, {"validation_step": validation_step}, lambda module: None)
    with pytest.raises(KeyError, match="mine"):
        trainer_of(systolic).fit(module, loader(48, 1), loader(36, 2))


def test_a_step_that_asks_for_nothing_fails_once(tmp_path: Path) -> None:
    calls = os.open(tmp_path / "calls", os.O_WRONLY | os.O_CREAT)  # what a failed trace leaves in Python's objects is put back

    def validation_step(module: Any, batch: Any, i: int) -> None:
        os.write(calls, b"x")
        module(batch[0], "too many")

    module = module_of(systolic, {"validation_step": validation_step}, lambda module: None)
    with pytest.raises(TypeError):
        trainer_of(systolic).fit(module, loader(48, 1), loader(36, 2))
    os.close(calls)
    assert (tmp_path / "calls").read_bytes() == b"x"


def test_many_ways_through_a_step_end_on_the_host(caplog: pytest.LogCaptureFixture) -> None:
    def validation_step(module: Any, batch: Any, i: int) -> None:
        for place, value in enumerate(module(batch[0])[:8].flatten()):
            if value > 0.1:
                module.seen.append((i, place))

    module = beside_lightning({"validation_step": validation_step}, lambda module: module.seen, epochs=6)
    assert module.seen
    assert "compiled again and again" in caplog.text
