"""Members of the progress bar that rich draws, for those who subclass it: the same as those of Lightning's."""

from __future__ import annotations

import io
from typing import Any

import lightning.pytorch as theirs
import pytest
import torch
from lightning.pytorch.callbacks import RichProgressBar as TheirBar
from lightning.pytorch.demos.boring_classes import BoringModel
from rich.progress import MofNCompleteColumn, SpinnerColumn, Task, TextColumn
from trainer.runs import SILENT, Line, batches

import systolic as ours
from systolic.callbacks import RichProgressBar
from systolic.callbacks.progress import rich_progress

RUN = {"max_epochs": 2, "limit_train_batches": 5, "limit_val_batches": 3, "num_sanity_val_steps": 2}
QUIET = {"enable_checkpointing": False, "enable_model_summary": False, "logger": False, "accelerator": "cpu"}


class Boring(Line):
    """A module whose loaders stand beside it, as those of Lightning's BoringModel do."""

    def train_dataloader(self) -> Any:
        return batches(5)

    def val_dataloader(self) -> Any:
        return batches(3)

    test_dataloader = predict_dataloader = val_dataloader

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.training_step(batch, batch_idx)

    def test_step(self, batch: Any, batch_idx: int) -> None:
        self.training_step(batch, batch_idx)

    def predict_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return self.training_step(batch, batch_idx)


def seen(task: Task) -> tuple[str, float, float | None, bool]:
    return task.description.strip(), task.completed, task.total, task.visible


def tasks_of(bar: Any, trainer: Any, module: Any, stage: str) -> list[tuple[str, float, float | None, bool]]:
    getattr(trainer, stage)(module)
    return [seen(task) for task in bar.progress.tasks]


@pytest.mark.filterwarnings("ignore:::lightning", "ignore:.*does not have many workers", "ignore:.*isinstance.treespec")
@pytest.mark.parametrize("stage", ["fit", "validate", "test", "predict"])
def test_the_tasks_of_a_run_are_lightnings(stage: str, tmp_path: Any) -> None:
    more = {"default_root_dir": str(tmp_path), "limit_test_batches": 2, "limit_predict_batches": 1}
    wanted_bar, bar = TheirBar(), RichProgressBar()
    console = {"console_kwargs": {"file": io.StringIO()}}
    wanted_bar._console_kwargs = console["console_kwargs"]
    wanted = tasks_of(wanted_bar, theirs.Trainer(**{**QUIET, **RUN, **more}, callbacks=wanted_bar), BoringModel(), stage)
    found = tasks_of(
        bar, ours.Trainer(**{**SILENT, **RUN, **more, "enable_progress_bar": True}, callbacks=bar), Boring(), stage
    )
    # every loader and every validation adds a task to Lightning's; ours begins validation's again, and names no loader
    names = [name.removesuffix(" DataLoader 0") for name, *_ in wanted]
    kept = [names.index(name) for name in dict.fromkeys(names)]
    assert [(names[i], *wanted[i][1:]) for i in kept] == found


def test_tasks_have_names() -> None:
    bar = RichProgressBar()
    with pytest.raises(TypeError, match="train_progress_bar is not there before its first batch"):
        _ = bar.train_progress_bar
    ours.Trainer(**{**SILENT, **RUN, "enable_progress_bar": True}, callbacks=bar).fit(Boring())
    assert seen(bar.train_progress_bar) == ("Epoch 1/1", 5, 5, True)
    assert seen(bar.val_progress_bar) == ("Validation", 3, 3, False)
    assert seen(bar.val_sanity_check_bar) == ("Sanity Checking", 2, 2, False)
    assert bar.test_progress_bar_id is bar.predict_progress_bar_id is None


def terminal_run(bar: RichProgressBar, **options: Any) -> str:
    written = io.StringIO()
    bar._console_kwargs = {"force_terminal": True, "file": written, "width": 100, "color_system": None}
    given: dict[str, Any] = {**SILENT, **RUN, "enable_progress_bar": True, "callbacks": bar, **options}
    ours.Trainer(**given).fit(Boring())
    return written.getvalue()


def test_columns_of_ones_own_and_of_rich_are_shown() -> None:
    class Mine(RichProgressBar):
        def configure_columns(self, trainer: Any) -> list[Any]:
            return [SpinnerColumn(), TextColumn("<{task.description}>"), MofNCompleteColumn(), "{task.percentage:.0f}%"]

    bar = Mine()
    text = terminal_run(bar)
    assert "<Epoch 1/1> 5/5 100%" in text
    assert "it/s" not in text
    assert bar.progress is not None
    assert isinstance(bar.progress.columns[-1], rich_progress.MetricsTextColumn)


def test_columns_can_be_added_to_the_usual_ones() -> None:
    class More(RichProgressBar):
        def configure_columns(self, trainer: Any) -> list[Any]:
            return [*super().configure_columns(trainer), TextColumn(f"of {trainer.max_epochs}")]

    text = terminal_run(More())
    assert "it/s of 2" in text
    assert "Validation" in text


def test_a_task_of_ones_own_is_shown() -> None:
    class Counting(RichProgressBar):
        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            super().on_train_start(trainer, pl_module)
            assert self.progress is not None
            self.mine = self.progress.add_task("samples", total=40)

        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            assert self.progress is not None
            self.progress.update(self.mine, advance=4)
            self.refresh(hard=True)

    bar = Counting()
    text = terminal_run(bar, max_epochs=1)
    assert bar.progress is not None
    assert seen(bar.progress.bar_task(bar.mine)) == ("samples", 20, 40, True)
    assert "samples" in text
    assert "20/40" in text


@pytest.mark.parametrize("leave", [False, True])
def test_leave_decides_whether_an_epochs_bar_begins_again(leave: bool) -> None:
    bar = RichProgressBar(leave=leave)
    ids = []

    class Notes(ours.Callback):
        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            ids.append(bar.train_progress_bar_id)

    ours.Trainer(**{**SILENT, **RUN, "enable_progress_bar": True}, callbacks=[bar, Notes()]).fit(Boring())
    assert len(set(ids)) == (2 if leave else 1)


def test_the_metrics_column_shows_what_get_metrics_gives() -> None:
    class Mine(RichProgressBar):
        def get_metrics(self, trainer: Any, pl_module: Any) -> dict[str, Any]:
            return {"lr": 0.5, "note": "x"}

    bar = Mine()
    assert "lr: 0.5  note: x" in terminal_run(bar)
    assert bar.progress is not None
    column = bar.progress.columns[-1]
    assert not isinstance(column, str)
    assert str(column(bar.train_progress_bar)) == "lr: 0.5  note: x"


def test_a_disabled_bar_makes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    monkeypatch.setattr(rich_progress, "CustomProgress", lambda *columns, **options: made.append(columns))
    bar = RichProgressBar()
    bar.disable()
    ours.Trainer(**{**SILENT, **RUN, "enable_progress_bar": True}, callbacks=bar).fit(Boring())
    assert not made
    assert bar.progress is None
    assert bar.train_progress_bar_id is None
