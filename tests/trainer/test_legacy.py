"""Old spellings: each is accepted with one line that shows the new form, or refused with it (F4, F5)."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from trainer.runs import Line, batches, trainer

import systolic as L
from systolic.compat import REMOVED_HOOKS, REMOVED_PARAMETERS, modern
from systolic.compat._arguments import _RULES
from systolic.exceptions import PossibleUserWarning
from systolic.trainer import _interception

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import legacy_docs  # noqa: E402

QUIET: dict[str, Any] = {
    "max_epochs": 1,
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}
ROWS = [pytest.param(example, id=legacy_docs.shown(example)) for example in legacy_docs.EXAMPLES]


def told(arguments: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        new = modern(arguments)
    assert all(w.category is FutureWarning for w in caught)
    return new, [str(w.message) for w in caught]


def test_the_table_is_what_the_rules_do() -> None:
    assert (ROOT / "docs" / "legacy.md").read_text() == legacy_docs.document(), "run: python scripts/legacy_docs.py"


def test_every_rule_has_a_row() -> None:
    assert {name for example in legacy_docs.EXAMPLES for name in example} == set(_RULES)


@pytest.mark.parametrize("example", ROWS)
def test_one_line_or_an_error_shows_the_new_form(example: dict[str, Any]) -> None:
    what, write = legacy_docs.outcome(example)
    if what == "refused":
        with pytest.raises(L.MisconfigurationException) as error:
            L.Trainer(**example, **QUIET)
        ((name, value),) = example.items()
        assert str(error.value).startswith(f"Trainer({name}={value!r}): ")
        assert write in str(error.value)
        return
    new, lines = told(example)
    assert len(lines) == 1
    assert "\n" not in lines[0]
    assert legacy_docs.shown(example) in lines[0].replace("'", '"')
    if new:
        assert legacy_docs.shown(new) in lines[0].replace("'", '"')
    else:
        assert "Leave it out" in lines[0]
    assert told(new) == (new, []), "the new form is an old one, too"


@pytest.mark.parametrize(
    ("example", "attributes"),
    [
        ({"num_processes": 2}, {"num_devices": 2, "accelerator": "cpu"}),
        ({"accelerator": "cpu", "strategy": "tpu_spawn", "devices": 2}, {"num_devices": 2}),
        ({"accelerator": "cpu", "strategy": "single_xla"}, {"num_devices": 1}),
        ({"accelerator": "cpu", "precision": 16}, {"precision": "bf16-true"}),
        ({"accelerator": "cpu", "precision": "bf16"}, {"precision": "bf16-mixed"}),
        ({"accelerator": "cpu", "replace_sampler_ddp": False}, {"use_distributed_sampler": False}),
        ({"accelerator": "cpu", "terminate_on_nan": True}, {"detect_anomaly": True}),
    ],
)
def test_the_trainer_does_it_with_one_line(example: dict[str, Any], attributes: dict[str, Any]) -> None:
    with pytest.warns(FutureWarning, match="is an old spelling. Write Trainer") as caught:
        trainer = L.Trainer(**example, **QUIET)
    assert len(caught) == 1
    assert Path(caught[0].filename) == Path(__file__), "the line is not the user's"
    assert {name: getattr(trainer, name) for name in attributes} == attributes


# defect 10: 2 or 4 of 8 cores, and any list of them, can be asked for
@pytest.mark.parametrize(
    ("example", "wanted"),
    [
        ({"tpu_cores": 8}, ("tpu", 8)),
        ({"tpu_cores": [5]}, ("tpu", [4])),
        ({"tpu_cores": "5"}, ("tpu", [4])),
        ({"accelerator": "tpu", "tpu_cores": 4}, ("tpu", 4)),
        ({"gpus": 0, "tpu_cores": 8}, ("tpu", 8)),
        ({"gpus": "0,1"}, ("gpu", "0,1")),
    ],
)
def test_which_devices_are_asked_for(example: dict[str, Any], wanted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class Stop(Exception):
        """This machine has no TPU."""

    def find(accelerator: Any, devices: Any) -> Any:
        asked.append((accelerator, devices))
        raise Stop

    monkeypatch.setattr(_interception, "find_devices", find)
    with pytest.warns(FutureWarning), pytest.raises(Stop):
        L.Trainer(**example, **QUIET)
    assert asked == [wanted]


@pytest.mark.parametrize(
    "example",
    [
        {"tpu_cores": 8, "accelerator": "cpu"},
        {"tpu_cores": 8, "devices": 4},
        {"tpu_cores": 8, "gpus": 2},
        {"strategy": "single_tpu", "devices": 8},
        {"plugins": "tpu_spawn_debug", "profiler": "simple"},
    ],
)
def test_contradictions_are_errors(example: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        with pytest.raises(L.MisconfigurationException, match="is a contradiction: .* Keep one"):
            L.Trainer(**example, **QUIET)


@pytest.mark.parametrize("cores", [True, -2, 2.5, [0], ["x"], "a", "5,x", {}])
def test_impossible_cores(cores: Any) -> None:
    with pytest.raises(L.MisconfigurationException, match=r"tpu_cores.*expected a number of cores such as 8.*devices=\[4\]"):
        modern({"tpu_cores": cores})


def test_todays_spellings_say_nothing() -> None:
    current = {"accelerator": "cpu", "strategy": "auto", "devices": 2, "precision": "bf16-true", "profiler": None}
    assert told(current) == (current, [])
    assert told({"strategy": "ddp", "plugins": None, "precision": 32}) == (
        {"strategy": "ddp", "plugins": None, "precision": 32},
        [],
    )


REFUSED = {"training_epoch_end", "validation_epoch_end", "test_epoch_end"}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_hooks_that_lightning_refuses_are_refused(name: str) -> None:
    step = {"validation_step": lambda self, batch, batch_idx: None, "test_step": lambda self, batch, batch_idx: None}
    module = type("Old", (Line,), {name: lambda self, outputs: None, **step})()
    told = rf"`Old.{name}` is a hook that Lightning 2.0 removed.*Instead, "
    refusing = {"training_epoch_end": ["fit"], "validation_epoch_end": ["fit", "validate"], "test_epoch_end": ["test"]}[name]
    for call in ("fit", "validate", "test"):
        found = pytest.raises(L.MisconfigurationException, match=told) if call in refusing else pytest.warns(match=told)
        with found:
            getattr(trainer(compile=False), call)(module, batches(1))


@pytest.mark.parametrize("name", sorted(set(REMOVED_HOOKS) - REFUSED))
def test_hooks_that_nobody_calls_are_named(name: str) -> None:
    module = type("Old", (Line,), {name: lambda self, *args: None})()
    with pytest.warns(PossibleUserWarning, match=rf"`Old.{name}` is a hook that Lightning 2.0 removed.*Instead, "):
        trainer(compile=False).fit(module, batches(1))


def test_a_method_that_no_old_lightning_could_call_is_the_users_own() -> None:
    module = type("Own", (Line,), {"on_epoch_end": lambda self, outputs: None})()  # as pytorch-forecasting's models have
    trainer(compile=False).fit(module, batches(1))


@pytest.mark.parametrize(("name", "parameter"), sorted(REMOVED_PARAMETERS))
def test_parameters_that_nobody_passes_are_refused(name: str, parameter: str) -> None:
    scope: dict[str, Any] = {}
    exec(f"def {name}(self, *, {parameter}): pass", scope)
    module = type("Old", (Line,), {name: scope[name]})()
    with pytest.raises(L.MisconfigurationException, match=rf"`Old.{name}` takes `{parameter}`.*Instead, "):
        trainer(compile=False).fit(module, batches(1))


def test_unknown_arguments_are_still_errors() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument .tpu_core."):
        L.Trainer(tpu_core=8, **QUIET)
