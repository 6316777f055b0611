"""`trainer.report()`: what a run did, as one page; also of runs that failed or go on, and of several in one directory."""

from __future__ import annotations

import copy
import html
import re
import shutil
import subprocess
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset
from trainer.runs import SILENT, Line, batches, trainer

import systolic as L
from systolic.diagnostics import read_runs
from systolic.loggers import CSVLogger


class Told(Line):
    """Logs, validates, prints, and counts."""

    seen = 0

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = super().training_step(batch, batch_idx)
        self.log("train_loss", loss)
        self.seen += 1
        print(f"{loss:.2f}")  # noqa: T201
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", super().training_step(batch, batch_idx))

    def test_step(self, batch: Any, batch_idx: int) -> None:
        self.log("test_loss", super().training_step(batch, batch_idx))


def run(path: Path, **options: Any) -> L.Trainer:
    given = {**SILENT, "devices": 1, "max_epochs": 3, "log_every_n_steps": 2, "default_root_dir": path}
    return L.Trainer(**{**given, "logger": CSVLogger(path), "enable_checkpointing": True, **options})


def text_of(page: Path) -> str:
    """What a reader sees."""
    body = re.sub(r"<style>.*?</style>|</?code>", "", page.read_text(), flags=re.DOTALL)
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", body)))


def test_a_report_tells_what_the_run_did(tmp_path: Path) -> None:
    one = run(tmp_path)
    one.fit(Told(), batches(10), batches(4))
    page = one.report()
    assert page == tmp_path / "lightning_logs" / "version_0" / "report.html"
    text = text_of(page)
    assert "fit of Told" in text
    assert re.search(r"Finished after [\d.]+ m?s, at epoch 3, step 30\.", text)
    assert "sets model.seen (training)" in text
    assert re.search(r"print at .*test_run_report\.py:\d+ in training_step \(training\)", text)
    assert "epoch=2-step=30.ckpt" in text
    assert "From metrics.csv: everything that was sent to the logger." in text
    assert "The devices told of no bytes in use: simulated cores" in text
    assert "first call" in text
    # nothing is loaded from anywhere
    assert not re.search(r"(?i)<script|<link|src=|https?://|@import|url\(", page.read_text())


def test_the_figures_are_those_of_the_run(tmp_path: Path) -> None:
    one = run(tmp_path)
    began = time.perf_counter()
    one.fit(Told(), batches(10), batches(4))
    took = time.perf_counter() - began
    (told,) = read_runs(Path(one.log_dir or ""))
    assert (told["status"], told["epoch"], told["global_step"]) == ("finished", 3, 30)
    compiled = told["compiles"]["events"]
    training = [event for event in compiled if event["stage"] == "training"]
    assert told["steps"]["training"]["count"] == 30 - len({event["step"] for event in training})
    assert [event["step"] for event in training][:2] == [0, 1]
    assert sum(told["spent"].values()) <= told["seconds"] <= took
    expected = sum(one.trace_seconds + one.compile_seconds for one in one.compiles)
    assert told["spent"]["tracing and compiling"] == pytest.approx(expected) == pytest.approx(told["compiles"]["seconds"])
    assert [Path(event["path"]).name for event in told["checkpoints"]["events"]] == [
        "epoch=0-step=10.ckpt",
        "epoch=1-step=20.ckpt",
        "epoch=2-step=30.ckpt",
    ]
    rows = told["values"]["train_loss"]["points"]
    assert [row[0] for row in rows] == list(range(1, 30, 2))
    csv = (Path(one.log_dir or "") / "metrics.csv").read_text()
    assert all(repr(row[1]) in csv for row in rows)


def test_many_checkpoints_are_told_in_a_short_table(tmp_path: Path) -> None:
    keeps = L.callbacks.ModelCheckpoint(every_n_train_steps=1, save_top_k=-1)
    one = run(tmp_path, max_epochs=1, callbacks=[keeps])
    one.fit(Line(), batches(130))
    page = one.report()
    text = text_of(page)
    assert "130 saved, " in text
    assert "110 between the first and the newest 10 are left out here." in text
    assert page.read_text().count("<td>checkpoints/epoch=0-step=") == 20
    assert "step=10.ckpt" in text
    assert "step=121.ckpt" in text


def test_waiting_for_data_is_told(tmp_path: Path) -> None:
    class Slow(TensorDataset):
        def __getitem__(self, index: int) -> Any:
            time.sleep(0.02)
            return {"x": torch.ones(4), "y": torch.ones(1)}

    one = run(tmp_path, max_epochs=1)
    one.fit(Line(), DataLoader(Slow(torch.zeros(20)), batch_size=1))
    (told,) = read_runs(Path(one.log_dir or ""))
    assert told["spent"]["waiting for data"] > 0.2
    waits = told["steps"]["training"]
    assert waits["waited"] / waits["seconds"] > 0.5


def test_lines_that_read_values_are_named(tmp_path: Path) -> None:
    class Reads(L.Callback):
        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            float(outputs["loss"])

    one = run(tmp_path, callbacks=[Reads()], max_epochs=1)
    one.fit(Line(), batches(6))
    (told,) = read_runs(Path(one.log_dir or ""))
    ((line, (count, seconds)),) = told["reads"].items()
    assert re.search(r"test_run_report\.py:\d+ in .*on_train_batch_end$", line)
    assert count == 6
    assert seconds > 0
    without = run(tmp_path, max_epochs=1, advice=False)
    without.fit(Line(), batches(2))
    assert "are not known: they are watched in fit, with advice=True" in text_of(without.report())


def test_a_run_that_failed_says_by_what(tmp_path: Path) -> None:
    class Fails(L.Callback):
        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            if batch_idx == 3:
                raise KeyError("<b>broken</b>")

    one = run(tmp_path, callbacks=[Fails()])
    with pytest.raises(KeyError, match="broken"):
        one.fit(Line(), batches(6))
    page = one.report()
    assert "<b>broken</b>" not in page.read_text()
    assert re.search(r"Ended after .*, at epoch 0, step 4, by KeyError: '<b>broken</b>'\.", text_of(page))


def test_fit_and_test_of_one_trainer_are_on_one_page(tmp_path: Path) -> None:
    one, module = run(tmp_path, max_epochs=1), Told()
    one.fit(module, batches(4), batches(2))
    one.test(module, batches(2), verbose=False)
    text = text_of(one.report(tmp_path / "here" / "page.html"))
    assert "2 runs of this directory, oldest first: fit (finished), and this test." in text
    assert "test of Told" in text
    assert [told["method"] for told in read_runs(Path(one.log_dir or ""))] == ["fit", "test"]


def test_another_trainer_goes_on_in_the_same_directory(tmp_path: Path) -> None:
    first = run(tmp_path, max_epochs=1)
    first.fit(Told(), batches(4))
    second = run(tmp_path, logger=CSVLogger(tmp_path, version=0), max_epochs=2)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Checkpoint directory")
        second.fit(Told(), batches(4), ckpt_path=tmp_path / "lightning_logs/version_0/checkpoints/epoch=0-step=4.ckpt")
    assert [told["global_step"] for told in read_runs(tmp_path / "lightning_logs" / "version_0")] == [4, 8]
    assert "2 runs of this directory" in text_of(second.report())


def test_a_run_without_a_logger_leaves_no_file_and_can_be_told_of(tmp_path: Path) -> None:
    one = trainer(default_root_dir=tmp_path)
    one.fit(Told(), batches(4))
    assert list(tmp_path.iterdir()) == []
    text = text_of(one.report())
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    assert "As the run recorded them: what self.log sent to the loggers." in text
    assert "None was saved." in text


def test_eager_pytorch_says_that_nothing_was_compiled(tmp_path: Path) -> None:
    one = trainer(default_root_dir=tmp_path, compile=False)
    one.fit(Line(), batches(4))
    assert "Nothing was compiled: steps ran in eager PyTorch." in text_of(one.report())


def test_a_report_from_inside_the_run(tmp_path: Path) -> None:
    class Asks(L.Callback):
        def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
            self.text = text_of(trainer.report())

    asks = Asks()
    run(tmp_path, callbacks=[asks], max_epochs=1).fit(Line(), batches(4))
    assert "Has not said that it ended" in asks.text
    assert "4 training steps" in asks.text or "3 training steps" in asks.text or "2 training steps" in asks.text


def test_values_that_are_not_finite_are_told_and_not_drawn(tmp_path: Path) -> None:
    def divided(module: Any, batch: Any) -> torch.Tensor:
        loss = module.layer(batch["x"]).mean()
        module.log("odd", loss / torch.zeros(()))
        return loss

    one = run(tmp_path, max_epochs=1, log_every_n_steps=1)
    one.fit(Line(divided), batches(3))
    page = one.report()
    assert "3 values of odd were not finite (nan, inf), the first at step 0." in text_of(page)
    assert "NaN" not in page.read_text()


def test_nothing_ran() -> None:
    with pytest.raises(L.MisconfigurationException, match=r"nothing did yet.*Expected: fit, .*systolic report DIR"):
        trainer().report()


def test_a_path_that_is_a_directory(tmp_path: Path) -> None:
    one = trainer(default_root_dir=tmp_path)
    one.fit(Line(), batches(2))
    with pytest.raises(L.MisconfigurationException, match=r"that is a directory. Expected: the name of a file"):
        one.report(tmp_path)


def test_a_trainer_with_a_record_is_copied(tmp_path: Path) -> None:
    one = trainer(default_root_dir=tmp_path)
    one.fit(Told(), batches(4))
    assert "at epoch 1, step 4" in text_of(copy.deepcopy(one).report(tmp_path / "copy.html"))


CHROMIUM = next((p for name in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(name))), None)


@pytest.mark.tables
@pytest.mark.skipif(CHROMIUM is None, reason="no browser on this machine")
@pytest.mark.parametrize("width", [390, 1200])
def test_page_in_a_real_browser(width: int, tmp_path: Path) -> None:
    one = run(tmp_path, max_epochs=6)
    one.fit(Told(), batches(10), batches(4))
    page, picture, frame = one.report(), tmp_path / "page.png", tmp_path / "frame.html"
    # a window of the browser is 500 pixels wide at least
    frame.write_text(f'<body style="margin:0"><iframe src="{page}" style="width:{width}px;height:3000px;border:0"></iframe>')
    options = [
        *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
        *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1200,3000"),
        *(f"--user-data-dir={tmp_path / 'browser'}", f"--screenshot={picture}"),
    ]
    subprocess.run([str(CHROMIUM), *options, f"file://{frame}"], check=True, timeout=60, capture_output=True)
    shown = Image.open(picture).convert("RGB").crop((0, 0, width, 3000))
    colors = {color: count for count, color in shown.getcolors(maxcolors=1 << 24)}
    # the lines of curves, and of the bar: compiling, setup, training steps
    for color in ((0x1F, 0x77, 0xC9), (0xC2, 0x41, 0x0C), (0x82, 0x50, 0xC8), (0x8D, 0x97, 0xA8)):
        assert colors.get(color, 0) > 150, f"hardly a pixel of {color}"
    # nothing sticks out: the last columns of pixels are the page's own colour
    edge = shown.crop((width - 8, 0, width, 3000)).getcolors(maxcolors=1 << 24)
    assert edge == [(8 * 3000, (0xFB, 0xFB, 0xFD))]


def test_a_file_that_cannot_be_written_ends_no_run(tmp_path: Path) -> None:
    one = run(tmp_path, max_epochs=1)
    (tmp_path / "lightning_logs" / "version_0" / "systolic-run.json").mkdir(parents=True)
    one = run(tmp_path, max_epochs=1, logger=CSVLogger(tmp_path, version=0))
    with pytest.warns(UserWarning, match=r"systolic-run.json cannot be written, and the run goes on without: .*directory"):
        one.fit(Told(), batches(4))
    assert one.global_step == 4
