"""Debug mode: what `Trainer(profiler="xla")` reports is what happened."""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from trainer.runs import Given, Line, batches, trainer

import systolic as L
from systolic.profilers import XLAProfiler

METRICS = (
    "CompileTime",
    "DataWaitTime",
    "ExecuteTime",
    "HostOverheadTime",
    "TransferFromDeviceTime",
    "TransferToDeviceTime",
)
_TIME = r"(\d\dd)?(\d\dh)?(\d\dm)?(\d\ds)?(\d\d\dms)?\d\d\d\.\d\d\dus"
_METRIC = re.compile(
    rf"Metric: (\w+)\n  TotalSamples: (\d+)\n  Accumulator: {_TIME}\n"
    rf"(  ValueRate: {_TIME} / second\n  Rate: [\d.e+-]+ / second\n)?"
    rf"  Percentiles: 1%={_TIME}; 5%={_TIME}; 10%={_TIME}; 20%={_TIME}; 50%={_TIME}; 80%={_TIME}; 90%={_TIME}; "
    rf"95%={_TIME}; 99%={_TIME}\n"
)


class Reading(Line):
    """Looks at the loss in every other step."""

    def on_train_batch_end(self, outputs, batch, batch_idx):
        if batch_idx % 2 == 0:
            float(outputs["loss"])  # the line that the report names


def reading_line() -> int:
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if "the line that the report names" in line)


def measured(module: L.LightningModule, data: object, **options: object) -> XLAProfiler:
    profiler = XLAProfiler()
    trainer(profiler=profiler, **options).fit(module, data)
    return profiler


def test_report_has_every_metric_in_the_known_layout(capsys: pytest.CaptureFixture[str]) -> None:
    trainer(devices=2, profiler="xla", max_epochs=2).fit(Line(), batches(5))
    out = capsys.readouterr().out
    found = {match.group(1): int(match.group(2)) for match in _METRIC.finditer(out)}
    assert set(METRICS) <= set(found)
    assert found["DataWaitTime"] == found["ExecuteTime"] == found["HostOverheadTime"] == 10
    assert found["CompileTime"] == 1
    assert "10 training steps in" in out


# promise 3: L#15884; a callback that reads a value on the device is named by its line
def test_host_reads_are_counted_by_line() -> None:
    profiler = measured(Reading(), batches(6))
    reads = {n: profiler.metrics.counter_value(n) for n in profiler.metrics.counter_names() if __file__ in n}
    assert reads == {f"HostRead: {__file__}:{reading_line()} in Reading.on_train_batch_end": 3}


def test_what_the_trainer_reads_by_itself_is_not_blamed_on_the_user() -> None:
    profiler = measured(Line(), batches(3))
    own = [name for name in profiler.metrics.counter_names() if name.startswith("HostRead")]
    assert own
    assert all(name.startswith("HostRead: systolic/") for name in own)


def test_compiles_are_counted_by_cause() -> None:
    data = Given([*batches(2), *batches(1, size=3)])
    profiler = measured(Line(), data)
    causes = {n: profiler.metrics.counter_value(n) for n in profiler.metrics.counter_names() if n.startswith("CompileCause")}
    assert causes.pop("CompileCause: first call") == 1
    assert sum(causes.values()) == 1
    assert profiler.metrics.counter_value("UncachedCompile") == 2
    total, seconds, _ = profiler.metrics.metric_data("CompileTime")
    assert total == 2
    assert seconds > 0.01


def test_bytes_moved_are_counted() -> None:
    small, large = (measured(Line(), batches(4, size=size)).metrics.counter_value("BytesToDevice") for size in (8, 80))
    assert large - small == 4 * 72 * (4 + 1) * 4  # four batches with 72 more rows of 4 + 1 float32


class Slow(Dataset):
    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        time.sleep(0.05)
        return {"x": torch.ones(4), "y": torch.ones(1)}


def test_waiting_for_data_is_measured() -> None:
    profiler = measured(Line(), DataLoader(Slow(), batch_size=1), prefetch_batches=0)
    _, waited, _ = profiler.metrics.metric_data("DataWaitTime")
    assert waited >= 0.25
    _, host, _ = profiler.metrics.metric_data("HostOverheadTime")
    assert host < waited


def test_slow_hooks_are_host_overhead() -> None:
    class Sleepy(Line):
        def on_train_batch_end(self, outputs, batch, batch_idx):
            time.sleep(0.03)

    profiler = measured(Sleepy(), batches(4))
    _, host, _ = profiler.metrics.metric_data("HostOverheadTime")
    _, waited, _ = profiler.metrics.metric_data("DataWaitTime")
    assert host >= 0.12
    assert waited < host


def test_execution_of_a_heavy_step_is_measured() -> None:
    class Heavy(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(700, 700) / 700)

        def training_step(self, batch, batch_idx):
            x = batch["x"]
            for _ in range(12):
                x = torch.tanh(x @ self.weight)
            return x.square().mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    data = Given([{"x": torch.randn(700, 700)} for _ in range(4)])
    began = time.perf_counter()
    profiler = measured(Heavy(), data)
    elapsed = time.perf_counter() - began
    total, executed, _ = profiler.metrics.metric_data("ExecuteTime")
    _, compiled, _ = profiler.metrics.metric_data("CompileTime")
    assert total == 4
    assert executed > 4 * 0.005  # 36 products of 700^3 take longer than that on any core
    assert executed + compiled < elapsed


def test_validation_is_not_host_overhead_of_training() -> None:
    class Validated(Line):
        def validation_step(self, batch, batch_idx):
            self.log("v", self.layer(batch["x"]).mean())

        def on_validation_batch_end(self, *args):
            time.sleep(0.05)

    profiler = XLAProfiler()
    trainer(profiler=profiler, val_check_interval=2).fit(Validated(), batches(4), batches(4))
    steps = [step for step in profiler.recorder.steps() if step.stage == "training"]
    assert sum(step.host for step in steps) < 0.4  # the validation took at least 0.4
    assert len([step for step in profiler.recorder.steps() if step.stage == "validation"]) == 8


def test_report_on_demand_and_own_actions() -> None:
    seen: list[str] = []

    class Asking(Line):
        def on_train_batch_end(self, outputs, batch, batch_idx):
            with self.trainer.profiler.profile("my work"):
                seen.append(self.trainer.profiler.metrics_report())

    profiler = measured(Asking(), batches(3))
    assert "Metric: DataWaitTime\n  TotalSamples: 2\n" in seen[-1]
    assert "Metric: my work\n  TotalSamples: 3\n" in profiler.metrics_report()


@pytest.mark.parametrize("how", [{"strategy": "xla_debug"}, {"profiler": "xla"}, {"profiler": "xla", "compile": False}])
def test_files(how: dict[str, object], tmp_path: Path) -> None:
    told = pytest.warns(FutureWarning, match="Write Trainer.profiler='xla'") if "strategy" in how else contextlib.nullcontext()
    with told:
        run = trainer(default_root_dir=tmp_path, **how)
    run.fit(Line(), batches(3))
    text = (tmp_path / "fit-xla_profile.txt").read_text()
    assert "Metric: DataWaitTime" in text
    found = json.loads((tmp_path / "fit-xla_profile.json").read_text())
    assert [step["number"] for step in found["steps"]] == [0, 1, 2]
    assert found["metrics"]["DataWaitTime"]["total_samples"] == 3
    page = (tmp_path / "fit-xla_profile.html").read_text()
    assert page.count("<svg") == 2
    # nothing to load: no address, no script, no style sheet, no image, no font
    assert not re.search(r"https?:|<script|<link|<img|url\(|@import|src=", page)


def test_a_failing_run_still_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Failing(Line):
        def on_train_batch_end(self, outputs, batch, batch_idx):
            if batch_idx == 1:
                raise KeyError("broken")

    with pytest.raises(KeyError, match="broken"):
        trainer(default_root_dir=tmp_path, profiler="xla").fit(Failing(), batches(4))
    assert "Metric: ExecuteTime\n  TotalSamples: 2" in capsys.readouterr().out


def test_two_runs_do_not_mix(tmp_path: Path) -> None:
    class Tested(Line):
        def test_step(self, batch, batch_idx):
            self.log("t", self.layer(batch["x"]).mean())

    run = trainer(default_root_dir=tmp_path, profiler="xla")
    module = Tested()
    run.fit(module, batches(3))
    run.test(module, batches(2))
    found = json.loads((tmp_path / "test-xla_profile.json").read_text())
    assert found["counts"] == {"test": 2}


CHROMIUM = next((p for name in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(name))), None)


@pytest.mark.skipif(CHROMIUM is None, reason="no browser on this machine")
def test_page_in_a_real_browser(tmp_path: Path) -> None:
    trainer(default_root_dir=tmp_path, profiler="xla", max_epochs=3).fit(Reading(), DataLoader(Slow(), batch_size=1), None)
    picture = tmp_path / "page.png"
    options = [
        *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
        *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1080,1700"),
        *(f"--user-data-dir={tmp_path / 'browser'}", f"--screenshot={picture}"),
    ]
    subprocess.run(
        [CHROMIUM, *options, f"file://{tmp_path / 'fit-xla_profile.html'}"], check=True, timeout=60, capture_output=True
    )
    colors = {color: count for count, color in Image.open(picture).convert("RGB").getcolors(maxcolors=1 << 24)}
    # the boxes of the light theme: waiting, compiling, executing, host work
    for color in ((0xD9, 0x8E, 0x04), (0x82, 0x50, 0xC8), (0x1F, 0x77, 0xC9), (0x8D, 0x97, 0xA8)):
        assert colors.get(color, 0) > 150, f"hardly a pixel of {color}"


def test_wrong_range_of_steps() -> None:
    with pytest.raises(L.MisconfigurationException, match=r"`trace_steps`.*first <= last.*Received: \(5, 2\)"):
        XLAProfiler(trace_steps=(5, 2))


def test_trace_of_a_range_of_steps_holds_module_names(tmp_path: Path) -> None:
    profiler = XLAProfiler(dirpath=tmp_path, trace_steps=(2, 3))
    trainer(profiler=profiler).fit(Line(), batches(6))
    (perfetto,) = tmp_path.glob("trace/**/perfetto_trace.json.gz")
    events = json.loads(gzip.decompress(perfetto.read_bytes()))["traceEvents"]
    steps = {int(event["args"]["step_num"]) for event in events if event.get("name") == "training_step"}
    assert steps == {2, 3}
    (xplane,) = tmp_path.glob("trace/**/*.xplane.pb")
    assert b"model.layer" in xplane.read_bytes()
    assert b"backward/model.layer" in xplane.read_bytes()


def test_a_run_that_ends_inside_the_range_writes_its_trace(tmp_path: Path) -> None:
    trainer(profiler=XLAProfiler(dirpath=tmp_path, trace_steps=(1, 100))).fit(Line(), batches(3))
    assert list(tmp_path.glob("trace/**/*.xplane.pb"))
