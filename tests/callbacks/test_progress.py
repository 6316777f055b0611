"""The progress bar: what it shows, where, and that it costs nothing."""

import io
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from callbacks.fake_trainer import FakeTrainer

from systolic.callbacks import ProgressBar, RichProgressBar, RichProgressBarTheme
from systolic.callbacks.progress import _displays
from systolic.callbacks.progress._bar import Bar, format_metrics


class Recording(io.StringIO):
    """A terminal that keeps what was written."""

    def screens(self) -> str:
        return self.getvalue()


def on_terminal(**arguments: Any) -> tuple[RichProgressBar, Recording]:
    terminal = Recording()
    console = {"force_terminal": True, "file": terminal, "width": 120, "color_system": None}
    return RichProgressBar(console_kwargs=console, **arguments), terminal


def train(bar: RichProgressBar, epochs: int = 2, **arguments: Any) -> FakeTrainer:
    trainer = FakeTrainer(callbacks=[bar], max_epochs=epochs, **arguments)
    trainer.finished_metrics["loss"] = 0.123456
    trainer.train(epochs=epochs)
    trainer.call("teardown", "fit")
    return trainer


class Unreadable(torch.Tensor):
    """A value that is still on its way from the devices: reading it would wait."""

    def __torch_function__(self, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        raise AssertionError("the progress bar read a tensor")

    __format__ = __repr__ = __str__ = __float__ = __torch_function__  # type: ignore[assignment]


def test_a_log_gets_one_line_for_each_epoch(capsys: pytest.CaptureFixture[str]) -> None:
    train(RichProgressBar())
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" in ")[0] for line in lines] == ["Epoch 0/1: 4 batches", "Epoch 1/1: 4 batches"]
    assert all(line.endswith("/s), loss: 0.1235") for line in lines)
    assert not any(character < " " for line in lines for character in line)


def test_force_color_does_not_put_control_characters_into_a_log(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    bar = RichProgressBar()
    trainer = train(bar)
    bar.setup(trainer, None, "fit")
    bar.on_compile_start(trainer, "training step")
    bar.on_compile_end(trainer, 2.0)
    assert "\x1b" not in capsys.readouterr().out


def test_an_epoch_line_holds_what_its_last_hooks_logged(capsys: pytest.CaptureFixture[str]) -> None:
    trainer = FakeTrainer(callbacks=[RichProgressBar()])
    trainer.start()
    trainer.call("on_train_epoch_start")
    trainer.call("on_train_epoch_end")
    trainer.finished_metrics["late"] = 1.5
    trainer.call("on_train_end")
    assert capsys.readouterr().out.rstrip().endswith("late: 1.5")


def test_a_long_epoch_is_heard_of_once_a_minute(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    trainer = FakeTrainer(callbacks=[RichProgressBar()], num_training_batches=float("inf"), max_epochs=-1)
    trainer.start()
    trainer.call("on_train_epoch_start")
    for index in range(150):
        now[0] += 1
        trainer.call("on_step_dispatched", index)
    assert capsys.readouterr().out.splitlines() == [
        "Epoch 0: 61 batches in 0:01:01 (1.00/s)",
        "Epoch 0: 121 batches in 0:02:01 (1.00/s)",
    ]


def test_evaluations_of_their_own_get_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    for stage, label in (("validation", "Validation"), ("test", "Testing"), ("predict", "Predicting")):
        trainer = FakeTrainer(callbacks=[RichProgressBar()])
        trainer.state.fn = stage
        trainer.call("setup", stage)
        trainer.call(f"on_{stage}_start")
        for _ in range(2):
            for index in range(2):
                trainer.call("on_step_dispatched", index)
        trainer.call(f"on_{stage}_end")
        assert capsys.readouterr().out.startswith(f"{label}: 4 batches in 0.00 s (")


def test_a_terminal_shows_epoch_batches_rate_and_metrics() -> None:
    bar, terminal = on_terminal()
    train(bar)
    last = terminal.screens().split("Epoch 1/1")[-1]
    assert "4/4" in last
    assert "it/s" in last
    assert "loss: 0.1235" in last
    assert terminal.screens().endswith("\x1b[?25h")  # the cursor is back


def test_a_terminal_shows_validation_below() -> None:
    bar, terminal = on_terminal()
    trainer = FakeTrainer(callbacks=[bar])
    trainer.start()
    trainer.call("on_train_epoch_start")
    trainer.call("on_validation_start")
    trainer.call("on_step_dispatched", 0)
    screen = terminal.screens()
    assert screen.index("Epoch 0/9") < screen.index("Validation") < screen.index("1/2")
    trainer.call("on_validation_end")
    trainer.call("on_train_epoch_end")
    assert "Validation" not in terminal.screens().split("Epoch 0/9")[-1]
    trainer.call("teardown", "fit")


def test_the_sanity_check_is_named() -> None:
    bar, terminal = on_terminal()
    trainer = FakeTrainer(callbacks=[bar], sanity_checking=True)
    trainer.call("setup", "fit")
    for hook in ("on_sanity_check_start", "on_validation_start", "on_validation_end", "on_sanity_check_end", "on_train_end"):
        trainer.call(hook)
    assert "Sanity Checking" in terminal.screens()


def test_finished_epochs_can_be_left_behind() -> None:
    bar, terminal = on_terminal(leave=True)
    train(bar)
    assert "Epoch 0/1: 4 batches in" in terminal.screens()


def test_a_spinner_turns_while_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    bar, terminal = on_terminal()
    trainer = FakeTrainer(callbacks=[bar])
    trainer.call("setup", "fit")
    bar.on_compile_start(trainer, "training step")
    deadline = time.monotonic() + 10
    while terminal.screens().count("Compiling training step") < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert terminal.screens().count("Compiling training step") >= 4
    bar.on_compile_end(trainer, 12.34)
    assert "Compiling training step: 12.3 s" in terminal.screens()
    trainer.call("teardown", "fit")
    after = terminal.screens()
    time.sleep(0.15)
    assert terminal.screens() == after


def test_a_log_tells_of_compiling_only_when_it_is_slow(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_displays, "_PATIENCE_S", 0.2)
    bar = RichProgressBar()
    trainer = FakeTrainer(callbacks=[bar])
    trainer.call("setup", "fit")
    for seconds in (0.0, 0.5):
        bar.on_compile_start(trainer, "training step")
        time.sleep(seconds)
        bar.on_compile_end(trainer, seconds)
    assert capsys.readouterr().out.splitlines() == ["Compiling training step ...", "Compiling training step: done in 0.5 s"]


def test_the_spinner_tells_tracing_from_compiling() -> None:
    bar, terminal = on_terminal()
    trainer = FakeTrainer(callbacks=[bar])
    trainer.call("setup", "fit")
    bar.on_trace_start(trainer, "training step")
    wait_for(lambda: "Tracing training step" in terminal.screens())
    assert "Compiling" not in terminal.screens()
    bar.on_compile_start(trainer, "training step")
    wait_for(lambda: "Compiling training step" in terminal.screens())
    bar.on_compile_end(trainer, 9.2, trace_seconds=3.1)
    assert "Compiling training step: 12.3 s (tracing 3.1 s, compiling 9.2 s)" in terminal.screens()
    bar.on_trace_start(trainer, "training step")
    bar.on_compile_end(trainer, 0.0, trace_seconds=2.5)
    assert "Tracing training step: 2.5 s\n" in terminal.screens().replace("\r", "")
    trainer.call("teardown", "fit")


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_log_tells_tracing_from_compiling(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_displays, "_PATIENCE_S", 0.05)
    bar = RichProgressBar()
    trainer = FakeTrainer(callbacks=[bar])
    trainer.call("setup", "fit")
    written: list[str] = []
    monkeypatch.setattr(_displays.LineDisplay, "_line", lambda self, text: written.append(text))
    bar.on_trace_start(trainer, "training step")
    wait_for(lambda: len(written) == 1)
    bar.on_compile_start(trainer, "training step")
    wait_for(lambda: len(written) == 2)
    bar.on_compile_end(trainer, 10.0, 20.0, trace_seconds=3.0)
    times = "13.0 s (tracing 3.0 s, compiling 10.0 s, kept from an earlier run: 20.0 s saved)"
    assert written == [
        "Tracing training step ...",
        "Compiling training step ...",
        f"Compiling training step: done in {times}",
    ]
    trainer.call("teardown", "fit")


def test_tracing_is_no_part_of_the_rate() -> None:
    bar, _ = on_terminal()
    trainer = FakeTrainer(callbacks=[bar])
    trainer.start()
    trainer.call("on_train_epoch_start")
    assert bar._train is not None
    for _ in range(2):
        bar.on_trace_start(trainer, "x")
        bar.on_compile_start(trainer, "x")
        assert bar._train._pauses == 1
        bar.on_compile_end(trainer, 1.0, trace_seconds=1.0)
        assert bar._train._pauses == 0
    trainer.call("teardown", "fit")


def test_an_exception_gives_the_terminal_back() -> None:
    bar, terminal = on_terminal()
    trainer = FakeTrainer(callbacks=[bar])
    trainer.start()
    trainer.call("on_train_epoch_start")
    trainer.call("on_step_dispatched", 0)
    bar.on_compile_start(trainer, "training step")
    trainer.call("on_exception", KeyboardInterrupt())
    assert terminal.screens().endswith("\x1b[?25h")
    trainer.call("on_step_dispatched", 1)
    trainer.call("teardown", "fit")


# promise 5: L#15743
def test_no_tensor_is_ever_read() -> None:
    for bar in (on_terminal()[0], RichProgressBar()):
        trainer = FakeTrainer(callbacks=[bar])
        trainer.finished_metrics = {"loss": torch.ones(()).as_subclass(Unreadable), "acc": 0.5}
        trainer.train(epochs=1)
        trainer.call("teardown", "fit")


def test_refreshes_are_limited_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    bar, _ = on_terminal()
    drawn: list[float] = []
    monkeypatch.setattr(_displays.TerminalDisplay, "_draw", lambda self: drawn.append(time.monotonic()))
    trainer = FakeTrainer(callbacks=[bar])
    trainer.start()
    trainer.call("on_train_epoch_start")
    end = time.monotonic() + 0.55
    while time.monotonic() < end:
        trainer.call("on_step_dispatched", 0)
    assert len(drawn) <= 6
    assert min(b - a for a, b in zip(drawn, drawn[1:], strict=False)) >= 0.1


@pytest.mark.parametrize("make", [RichProgressBar, lambda: RichProgressBar(refresh_rate=0), lambda: on_terminal()[0]])
def test_a_batch_costs_about_a_microsecond(make: Callable[[], RichProgressBar]) -> None:
    bar = make()
    trainer = FakeTrainer(callbacks=[bar], num_training_batches=10**9)
    trainer.start()
    trainer.call("on_train_epoch_start")
    bar.on_step_dispatched(trainer, None, 0)
    times = []
    for _ in range(50):
        bar._due = float("inf")
        start = time.perf_counter()
        for index in range(1000):
            bar.on_step_dispatched(trainer, None, index)
        times.append((time.perf_counter() - start) / 1000)
    trainer.call("teardown", "fit")
    assert min(times) < 2e-6


def test_disabled_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    disabled = RichProgressBar()
    disabled.disable()
    for bar in (RichProgressBar(refresh_rate=0), disabled):
        assert bar.is_disabled
        trainer = train(bar)
        bar.on_compile_start(trainer, "x")
        bar.on_compile_end(trainer, 9.0)
    assert capsys.readouterr().out == ""
    disabled.enable()
    train(disabled)
    assert capsys.readouterr().out.startswith("Epoch 0/1")


def test_print(capsys: pytest.CaptureFixture[str]) -> None:
    RichProgressBar().print("a", 1, [2], sep="|", end="!\n")
    ProgressBar().print("[red]b[/]" + "x" * 200)
    assert capsys.readouterr().out == "a|1|[2]!\n[red]b[/]" + "x" * 200 + "\n"


def test_metrics_can_be_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    class Chosen(RichProgressBar):
        def get_metrics(self, trainer: Any, pl_module: Any) -> dict[str, Any]:
            return {**super().get_metrics(trainer, pl_module), "n": 3, "name": "x"}

    train(Chosen(theme=RichProgressBarTheme(metrics_format=".1f", metrics_text_delimiter="; ")), epochs=1)
    assert capsys.readouterr().out.endswith("loss: 0.1; n: 3; name: x\n")


def test_tensors_are_left_out_of_the_metrics() -> None:
    assert format_metrics({"a": 1e-7, "t": torch.ones(()), "i": 5}, ".4g", " ") == "a: 1e-07 i: 5"


def test_the_rate_leaves_out_the_first_batch_and_pauses() -> None:
    bar = Bar("x", total=100, now=0.0)
    assert bar.rate is None
    bar.done = 1
    bar.mark(50.0)  # compiling
    bar.pause(60.0)
    bar.pause(61.0)
    bar.resume(65.0)
    bar.resume(70.0)
    bar.done = 11
    bar.mark(80.0)
    assert bar.rate == pytest.approx(0.5)
    assert bar.remaining == pytest.approx(178)
    assert bar.elapsed == 80


def test_the_rate_is_that_of_the_last_mark() -> None:
    bar = Bar("x", total=100, now=0.0)
    bar.done = 1
    bar.mark(0.0)
    bar.done = 11
    bar.mark(10.0)
    bar.done = 50  # counted, but nobody has looked at the clock since
    assert bar.rate == pytest.approx(1.0)
    bar.pause(49.0)
    assert bar.rate == pytest.approx(1.0)
    bar.resume(1000.0)
    bar.mark(2000.0)  # saving a checkpoint after the last batch
    assert bar.rate == pytest.approx(1.0)
    bar.done = 100
    bar.mark(2001.0)
    assert bar.rate == pytest.approx(99 / (2001 - 951))


def test_totals() -> None:
    bar = RichProgressBar(refresh_rate=0)
    with pytest.raises(TypeError, match=r"before setup\(\)"):
        _ = bar.trainer
    bar.setup(FakeTrainer(max_epochs=-1, max_steps=3, num_val_batches=[2, 3]), None, "fit")
    assert (bar.total_train_batches, bar.total_val_batches, bar.total_test_batches) == (3, 5, 2)
    assert bar.epoch_description() == "Epoch 0"


def test_a_negative_rate_is_refused() -> None:
    with pytest.raises(ValueError, match="refresh_rate=-1"):
        RichProgressBar(refresh_rate=-1)


def test_a_bar_of_ones_own_must_say_how_to_hide() -> None:
    with pytest.raises(NotImplementedError, match=r"define disable\(\)"):
        ProgressBar().disable()
    with pytest.raises(NotImplementedError, match=r"define enable\(\)"):
        ProgressBar().enable()


def test_an_epoch_lines_rate_agrees_with_its_own_numbers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    for first_batch in (2.0, 0.1):
        trainer = FakeTrainer(callbacks=[RichProgressBar()], num_training_batches=21, max_epochs=1)
        trainer.start()
        trainer.call("on_train_epoch_start")
        for index in range(21):
            now[0] += 0.1 if index else first_batch
            trainer.call("on_step_dispatched", index)
        trainer.call("on_train_epoch_end")
        trainer.call("on_train_end")
    assert capsys.readouterr().out.splitlines() == [
        "Epoch 0/0: 21 batches in 4.0 s (5.25/s, steady 10.00/s)",
        "Epoch 0/0: 21 batches in 2.1 s (10.00/s)",
    ]
