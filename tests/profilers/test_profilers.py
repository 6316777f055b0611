"""Profilers by themselves, and in the Trainer."""

from __future__ import annotations

import pstats
from pathlib import Path

import pytest
import torch
from trainer.runs import Line, batches, trainer

import systolic as L
from systolic.profilers import AdvancedProfiler, PassThroughProfiler, Profiler, SimpleProfiler
from systolic.trainer._observed import observed_batches
from systolic.trainer._stage import Stage

ROWS = ("run_training_epoch", "run_training_batch", "train_dataloader_next", "SingleDeviceStrategy.training_step")


class Hooked(Line):
    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.seen = batch_idx

    def on_before_zero_grad(self, optimizer):
        self.traced = True


class Log(Profiler):
    """Keeps every start and stop."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[tuple[str, str]] = []
        self.stages: list[str] = []

    def start(self, action_name: str) -> None:
        self.events.append(("start", action_name))

    def stop(self, action_name: str) -> None:
        self.events.append(("stop", action_name))

    def setup(self, stage: str, local_rank: int | None = None, log_dir: str | None = None) -> None:
        self.stages.append(f"setup {stage}")

    def teardown(self, stage: str | None) -> None:
        self.stages.append(f"teardown {stage}")

    def count(self, action: str) -> int:
        return self.events.count(("start", action))


def test_simple_measures_and_reports(caplog: pytest.LogCaptureFixture) -> None:
    trainer(profiler="simple").fit(Hooked(), batches(3))
    out = "\n".join(caplog.messages)
    assert "FIT Profiler Report" in out
    for name in ROWS:
        assert name in out
    assert "[LightningModule]Hooked.on_train_batch_end" in out


def test_simple_counts_every_step() -> None:
    profiler = SimpleProfiler(extended=False)
    trainer(profiler=profiler, max_epochs=2).fit(Line(), batches(3))
    calls = {name: len(durations) for name, durations in profiler.recorded_durations.items()}
    assert calls["run_training_epoch"] == 2
    assert calls["run_training_batch"] == calls["[Strategy]SingleDeviceStrategy.training_step"] == 6
    assert calls["[_TrainingEpochLoop].train_dataloader_next"] == 8  # each epoch asks once more, and gets no batch
    assert not profiler.current_actions
    assert "Mean duration (s)" in profiler.summary()
    assert "Percentage" not in profiler.summary()


def test_simple_refuses_what_makes_no_sense() -> None:
    profiler = SimpleProfiler()
    profiler.start("a")
    with pytest.raises(ValueError, match="started a, which has already|start a, which has already"):
        profiler.start("a")
    with pytest.raises(ValueError, match="stop recording an action \\(b\\) which was never started"):
        profiler.stop("b")


def test_advanced_names_the_functions(tmp_path: Path) -> None:
    profiler = AdvancedProfiler(dirpath=tmp_path, filename="deep", line_count_restriction=20, dump_stats=True)
    trainer(profiler=profiler).fit(Line(), batches(2))
    text = (tmp_path / "fit-deep.txt").read_text()
    assert "Profile stats for: [Strategy]SingleDeviceStrategy.training_step" in text
    assert "_engine.py" in text
    dumped = pstats.Stats(str(tmp_path / "fit-deep-run_training_epoch.prof"))
    assert dumped.get_stats_profile().func_profiles
    assert not profiler.profiled_actions


def test_advanced_resumes_the_outer_action() -> None:
    def busy() -> int:
        return sum(range(1000))

    profiler = AdvancedProfiler()
    with profiler.profile("outer"):
        with profiler.profile("inner"):
            pass
        busy()
    report = profiler.summary()
    outer = report.split("Profile stats for: outer")[1].split("Profile stats for:")[0]
    assert "busy" in outer
    with pytest.raises(ValueError, match="never started"):
        profiler.stop("outer")


def test_own_profiler_sees_actions_in_pairs() -> None:
    profiler = Log()
    trainer(profiler=profiler, callbacks=[L.callbacks.LambdaCallback(on_train_start=lambda *_: None)]).fit(Hooked(), batches(2))
    open_actions: list[str] = []
    for kind, action in profiler.events:
        if kind == "start":
            open_actions.append(action)
        else:
            assert open_actions.pop() == action
    assert not open_actions
    assert profiler.count("[LightningModule]Hooked.on_train_batch_end") == 2
    assert profiler.count("[Callback]LambdaCallback.on_train_start") == 1
    assert profiler.stages == ["setup fit", "teardown fit"]


@pytest.mark.parametrize("stage", ["validate", "test", "predict"])
def test_other_stages(stage: str) -> None:
    class Evaluated(Line):
        def validation_step(self, batch, batch_idx):
            self.log("loss", self.layer(batch["x"]).mean())

        def predict_step(self, batch, batch_idx):
            return self.layer(batch["x"])

        test_step = validation_step

    profiler = Log()
    run = trainer(profiler=profiler)
    getattr(run, stage)(Evaluated(), batches(3))
    name = {"validate": "validation"}.get(stage, stage)
    assert profiler.count(f"[Strategy]SingleDeviceStrategy.{name}_step") == 3
    assert profiler.stages == [f"setup {stage}", f"teardown {stage}"]


def test_actions_end_when_the_run_fails() -> None:
    class Failing(Line):
        def on_train_batch_end(self, outputs, batch, batch_idx):
            raise KeyError("broken")

    profiler = Log()
    with pytest.raises(KeyError, match="broken"):
        trainer(profiler=profiler).fit(Failing(), batches(2))
    assert profiler.stages == ["setup fit", "teardown fit"]
    assert profiler.count("[LightningModule]Failing.on_train_batch_end") == 1


def test_the_result_does_not_depend_on_the_profiler() -> None:
    found = []
    for profiler in (None, "simple"):
        torch.manual_seed(0)
        module = Line()
        trainer(profiler=profiler).fit(module, batches(4))
        found.append(module.layer.weight.detach().clone())
    assert torch.equal(*found)


def test_without_a_profiler_nothing_is_wrapped() -> None:
    run = trainer()
    assert isinstance(run.profiler, PassThroughProfiler)
    with run.profiler.profile("mine"):
        run.fit(Line(), batches(1))
    source = iter([1])
    assert observed_batches(source, None, Stage.FIT) is source
    assert {type(engine).__name__ for engine in run.run.engines.values()} == {"Engine", "EvaluationEngine"}


def test_unknown_profiler_lists_the_known_ones() -> None:
    with pytest.raises(
        L.MisconfigurationException, match=r"`profiler` parameter of `Trainer`.*'simple'.*Received: 'simpel'.*[Dd]id you mean"
    ):
        trainer(profiler="simpel")
