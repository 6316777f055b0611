"""From logged values to loggers, callbacks and the progress bar, without making the loop wait."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from ..diagnostics import DEVICES
from ..distributed import broadcast
from ..loggers import LoggerProtocol
from ..metrics import LogEntry, Results
from ._defaults import watches_metrics
from ._hooks import HookTable
from ._host_log import HostLog
from ._lightning_loops import batches_that_stepped
from ._logger_limit import limited, logger_timeout
from ._stage import Stage
from ._step_engine import StepOutcome

if TYPE_CHECKING:
    from ._run import Run

_BAR_REFRESH_SECONDS = 0.1


class _Row(NamedTuple):
    """A step whose values are wanted.

    Attributes:
        step: the number of a row for the loggers; -1 where none is due.
        result: what the step returned; None where only what hooks logged is wanted.
        results: the entries of its values.
        left: values that earlier steps of the epoch logged and this one did not, by entry.
        of_hooks: values that hooks logged in the epoch so far, by the names that loggers see.
        of_batch: those that they logged for this batch.
    """

    step: int
    result: StepOutcome | None
    results: Results
    left: Mapping[str, Any] = MappingProxyType({})
    of_hooks: Mapping[str, float] = MappingProxyType({})
    of_batch: Mapping[str, float] = MappingProxyType({})


class _Given(NamedTuple):
    """Values on the host that a callback has for a logger, which wait for the rows of the steps before."""

    logger: LoggerProtocol
    metrics: Mapping[str, float]
    step: int


class Reporting:
    """Fetches values of finished steps in the background and hands them on.

    Attributes:
        metrics: values by name for callbacks, without those of the newest step.
        logged: the same for loggers, by the names that loggers see.
        finished: values by name that are on the host: what the progress bar may show.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._pending: deque[_Row | _Given] = deque()
        # what training steps of this epoch logged and later ones did not: as in Lightning it stands in its later rows
        self._left: dict[str, Any] = {}
        self._logs = frozenset[str]()  # the names of the newest step's values
        self._left_by_hooks: dict[str, float] = {}
        self._host = HostLog()
        self._logger_seconds = logger_timeout()
        self._latest: StepOutcome | None = None
        self._unread: dict[bool, tuple[StepOutcome, Results]] = {}
        self._bar_due = 0.0
        self._repeats_until: tuple[int, int] | None = None
        self._of_hooks: set[str] = set()
        self.metrics: dict[str, torch.Tensor] = {}
        self.logged: dict[str, torch.Tensor] = {}
        self.finished: dict[str, float] = {}

    def __getstate__(self) -> dict[str, Any]:
        """State that is copied and pickled: values, and no result of a program."""
        self.settle()
        left, by_hooks = self._logged_so_far()
        return {**vars(self), "_latest": None, "_logs": frozenset(), "_left": left, "_left_by_hooks": by_hooks}

    def dispatched(self, result: StepOutcome, results: Results, in_training: bool) -> None:
        """Note a step before its hooks run: who looks at metrics from now on sees its values, and waits for them."""
        self._unread[in_training] = (result, results)
        if in_training:
            names = result.names("logged")
            if self._left or names is not self._logs:
                self._leave(names)
            self._latest, self._logs = result, names

    def _leave(self, names: frozenset[str]) -> None:
        """Keep what the step before has logged and this one, which logs these names, does not."""
        before = {} if self._latest is None else self._latest.value()["logged"]
        self._left = {name: value for name, value in {**self._left, **before}.items() if name not in names}

    def step(self, result: StepOutcome, updates: bool) -> None:
        """Report a dispatched training step; starts fetching its values when they are wanted.

        Args:
            result: what the step returned.
            updates: whether an optimizer stepped; as in Lightning, loggers count only such batches.
        """
        run = self._run
        counters = run.counters
        counters.batches_that_stepped += updates
        run.progress.stepped_unreported = False
        every = run.config.log_every_n_steps
        due = updates and every > 0 and counters.batches_that_stepped % every == 0
        now = time.perf_counter()
        of_batch = self._host.take_batch() if self._host.of_batch else {}
        if due or now >= self._bar_due:
            self._bar_due = now + _BAR_REFRESH_SECONDS
            result.fetch()
            step = counters.batches_that_stepped - 1 if due else -1
            self._pending.append(_Row(step, result, run.train_results, self._left, self._left_by_hooks, of_batch))
        if of_batch:
            self._left_by_hooks = {**self._left_by_hooks, **of_batch}
        self._deliver_ready()

    def is_idle(self) -> bool:
        """Whether the devices have finished the step that came last."""
        return self._latest is None or (self._latest.is_dispatched and self._latest.is_ready())

    def evaluation_step(self, results: Results, result: StepOutcome, step: int) -> None:
        """Note an evaluation step; only values that were logged with `on_step=True` are reported."""
        sanity_checking = self._run.sanity_checking
        of_batch = self._host.take_batch()
        if of_batch and not sanity_checking:
            self._pending.append(_Row(step, None, results, of_batch=of_batch))
            self._deliver_ready()
        if sanity_checking or not any(e.on_step and e.logger for e in results.entries.values()):
            return
        self._pending.append(_Row(step, result, results))
        self._deliver_ready()

    def given(self, logger: LoggerProtocol, metrics: Mapping[str, float], step: int) -> None:
        """Send what a callback has for a logger after the rows of the steps before, as soon as these are there."""
        self._pending.append(_Given(logger, metrics, step))
        self._deliver_ready()

    def _deliver_ready(self) -> None:
        while self._pending and _is_ready(self._pending[0]):
            self._deliver(self._pending.popleft())

    def flush(self) -> None:
        """Deliver everything that was dispatched; waits for the devices."""
        while self._pending:
            self._deliver(self._pending.popleft())

    def _deliver(self, row: _Row | _Given) -> None:
        if isinstance(row, _Given):
            with limited(row.logger, self._logger_seconds):
                row.logger.log_metrics(metrics=dict(row.metrics), step=row.step)
            return
        of_step = {} if row.result is None else row.result.scalars("logged")
        values = {**{name: float(value) for name, value in row.left.items()}, **of_step}
        entries, in_training = row.results.entries, row.results is self._run.train_results
        for name, value in values.items():
            if entries[name].prog_bar:
                self.finished[entries[name].step_name] = value
        if row.step >= 0:
            chosen = {entries[n].step_name: v for n, v in values.items() if entries[n].logger}
            self._write({**row.of_hooks, **chosen, **row.of_batch}, row.step, in_training)

    def _write(self, values: dict[str, float], step: int, with_epoch: bool) -> None:
        """Send values to the loggers; a value of the name "step" is the x-axis that the user chose."""
        if not values or self.repeats:
            return
        metrics = dict(values)
        if with_epoch and "step" in metrics:
            step = int(metrics.pop("step"))
        elif with_epoch:
            metrics.setdefault("epoch", self._run.counters.epoch)
        self._run.record.logged(values, step)
        for logger in self._run.writers:
            with limited(logger, self._logger_seconds):
                logger.log_metrics(metrics=metrics, step=step)
                logger.save()

    def host_value(self, entry: LogEntry, value: torch.Tensor, in_training: bool) -> None:
        """Take a value that was logged by a hook on the host that does not run for each batch."""
        self._show(entry, entry.name, value, for_callbacks=True)
        self._of_hooks.add(entry.name)
        if not self._run.sanity_checking:
            self._host.add_once(entry, value.item(), in_training)

    def host_batch_value(self, entry: LogEntry, value: torch.Tensor, weight: float, in_training: bool) -> None:
        """Take a value that was logged by a hook on the host for one batch."""
        if entry.on_step:
            unread = self._unread.get(in_training)
            if unread is not None and entry.name in unread[1].entries:
                self.settle()  # the step's own value of this name is the older one
                self._left = {name: one for name, one in self._left.items() if name != entry.name}
            self._show(entry, entry.step_name, value, for_callbacks=in_training)
        self._host.add_of_batch(entry, value.item(), weight, in_training)

    def settle(self) -> None:
        """Take up the values of the newest steps; waits for them, and is called only where somebody looks."""
        if not self._unread:
            return
        self.flush()  # values of earlier steps first: they must not replace these later
        unread, self._unread = self._unread, {}
        for in_training, (result, results) in unread.items():
            for name, value in ((self._left if in_training else {}) | result.value()["logged"]).items():
                entry = results.entries[name]
                fetched = torch.as_tensor(value).detach().cpu()  # host sync: somebody looks at the metrics
                self._show(entry, entry.step_name, fetched, for_callbacks=in_training)

    def settled(self) -> Reporting:
        """This, with the values of the newest steps; waits for them."""
        self.settle()
        return self

    def _show(self, entry: LogEntry, shown_as: str, value: torch.Tensor, *, for_callbacks: bool) -> None:
        """Put a value where callbacks, loggers' readers and the progress bar look; of evaluation steps callbacks see none."""
        if for_callbacks:
            self.metrics[entry.name] = self.metrics[shown_as] = value
        if entry.logger:
            self.logged[shown_as] = value
        if entry.prog_bar:
            self.finished[shown_as] = value.item()

    def state_dict(self, in_epoch: bool) -> dict[str, Any]:
        """The newest values of everything, and in an epoch what hooks logged in it; waits for the last dispatched step."""
        self.settle()
        self.flush()
        shown = {"callback": dict(self.metrics), "logged": dict(self.logged), "progress_bar": dict(self.finished)}
        if not in_epoch:
            return {**shown, "hooks": None}
        steps, hooks = self._logged_so_far()
        return {**shown, "hooks": self._host.state_dict(), "left": {"steps": steps, "hooks": hooks}}

    def _logged_so_far(self) -> tuple[dict[str, float], dict[str, float]]:
        """The newest values of this epoch, of steps and of hooks, which stand in later rows until they are logged again."""
        newest = {} if self._latest is None else self._latest.scalars("logged")
        left = {name: float(value) for name, value in self._left.items()}  # host sync: for a checkpoint or a copy
        return {**left, **newest}, {**self._left_by_hooks, **self._host.of_batch}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with the values of `state_dict`."""
        self.metrics, self.logged = dict(state["callback"]), dict(state["logged"])
        self.finished = dict(state["progress_bar"])
        left = state.get("left", {"steps": {}, "hooks": {}})  # of 0.1 without
        self._left, self._left_by_hooks = dict(left["steps"]), dict(left["hooks"])
        if state["hooks"] is not None:
            self._host.load_state_dict(state["hooks"])

    def go_back(self, until: tuple[int, int]) -> None:
        """Training goes back: the rows before `until`, an epoch and a batch, were sent, and are not sent again."""
        self.flush()
        self._unread, self._host = {}, HostLog()
        self._leave_epoch()
        self._repeats_until = until

    def _leave_epoch(self) -> None:
        self._latest, self._logs, self._left, self._left_by_hooks = None, frozenset(), {}, {}

    @property
    def repeats(self) -> bool:
        """Whether training repeats batches whose rows were sent before."""
        return self._repeats_until is not None

    def arrived(self, place: tuple[int, int | float]) -> None:
        """Training came to an epoch and a batch of which something is new: what follows is sent."""
        if self._repeats_until is not None and place >= self._repeats_until:
            self.flush()
            self._repeats_until = None

    def forget(self) -> None:
        """Begin without any values: those of the sanity check count nowhere."""
        self.metrics, self.logged, self.finished = {}, {}, {}

    def epoch_end(self, results: Results, before_checkpoints: Callable[[], None]) -> None:
        """The training epoch is over: reduce its values, send them to the loggers, call the hooks."""
        run = self._run
        self._arrive()
        sent = self._publish(results, results.epoch_values()) | self._publish_host(True)
        run.progress.is_over = True
        _call_epoch_end(run.hooks, self.share, before_checkpoints)
        self._write(sent | self._host.take_once(True), max(run.counters.batches_that_stepped - 1, 0), True)
        self._leave_epoch()
        results.reset()

    def _arrive(self) -> None:
        """Wait for all steps, and take up their values."""
        with self._run.record.within(DEVICES, "Waiting for the devices"):
            self._run.verify()
            self.settle()
            self.flush()

    def _publish(self, results: Results, values: dict[str, torch.Tensor]) -> dict[str, float]:
        """Show an epoch's values to callbacks and the progress bar; returns those for the loggers."""
        return self._shown([(results.entries[name], value) for name, value in values.items()])

    def _publish_host(self, in_training: bool) -> dict[str, float]:
        """The same for what hooks on the host logged batch by batch."""
        reduced = self._host.reduced(in_training)
        self._of_hooks |= {shown for entry, _ in reduced for shown in (entry.name, entry.epoch_name)}
        return self._shown(reduced)

    def share(self) -> None:
        """Give callbacks in all processes what hooks logged in the first: decisions that follow from it are the same."""
        if self._run.is_shared:
            own = {name: self.metrics[name] for name in sorted(self._of_hooks) if name in self.metrics}
            self.metrics |= broadcast(own)

    def _shown(self, values: list[tuple[LogEntry, torch.Tensor]]) -> dict[str, float]:
        sent: dict[str, float] = {}
        for entry, value in values:
            self._show(entry, entry.epoch_name, value, for_callbacks=True)
            if entry.logger:
                sent[entry.epoch_name] = float(value)
        return sent

    def evaluation_end(self, results: Results, hook: str, loaders: int) -> list[dict[str, float]]:
        """An evaluation is over; returns its values, one dict a loader."""
        run = self._run
        self._arrive()
        values = results.epoch_values()
        sent = self._publish(results, values) | self._publish_host(False)
        run.hooks.both(hook)
        self.share()
        results.reset()
        from_hooks = self._host.take_loaders()
        if run.sanity_checking:
            return []
        self._write(sent | self._host.take_once(False), batches_that_stepped(run), True)
        entries = results.entries
        reported = [(entries[n].epoch_name, float(v), entries[n].loader) for n, v in values.items() if entries[n].logger]
        known = {name for name, *_ in reported}
        reported += [(n, float(self.metrics[n]), i) for n, i in from_hooks.items() if n in self.metrics and n not in known]
        return [{name: v for name, v, index in reported if index in (None, number)} for number in range(loaders)]


def _is_ready(row: _Row | _Given) -> bool:
    return isinstance(row, _Given) or row.result is None or row.result.is_ready()


def _call_epoch_end(hooks: HookTable, *before_checkpoints: Callable[[], None]) -> None:
    """Callbacks that watch a metric come last: the module's own hook may have logged it."""
    hooks.callbacks_where(lambda callback: not watches_metrics(callback), Stage.FIT.epoch_end)
    hooks.module(Stage.FIT.epoch_end)
    for call in before_checkpoints:
        call()
    hooks.callbacks_where(watches_metrics, Stage.FIT.epoch_end)
