"""Calling hooks: in Lightning's order, and only those that somebody overrode."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ..callbacks import Callback
from ..core import LightningDataModule, LightningModule
from ..exceptions import MisconfigurationException
from ..profilers import Profiler
from ..utilities._overrides import overrides
from ._guests import require_callback
from ._indexed_hooks import with_index_where_taken
from ._signatures import called, warn_of_misspelt

if TYPE_CHECKING:
    from ._trainer import Trainer

Bound = Callable[..., Any]
IN_STEPS = ("on_before_zero_grad", "on_before_backward", "on_after_backward", "on_before_optimizer_step")
"""The hooks of callbacks that run inside the step."""

BETWEEN_STEPS = frozenset(name for name in vars(Callback) if name.startswith("on_")).difference(IN_STEPS)
"""Hooks of callbacks and modules that run between the steps."""


class HookTable:
    """The overridden hooks of a run.

    For most hooks Lightning calls the callbacks first and the module after them; a hook that nobody overrode costs
    one dictionary look-up.

    Attributes:
        running: the hook that runs, with its arguments after trainer and module; what `self.log` does depends on it.
    """

    def __init__(
        self,
        trainer: Trainer,
        callbacks: list[Callback],
        module: LightningModule,
        datamodule: LightningDataModule | None = None,
        profiler: Profiler | None = None,
    ) -> None:
        self.running: tuple[str, tuple[Any, ...]] = ("", ())
        self._trainer = trainer
        self._profiler = profiler
        self._callbacks = callbacks
        self._module = module
        self._datamodule = datamodule
        self._of_data: dict[str, Bound | None] = {}
        self._of_callbacks: dict[str, list[Bound]] = {}
        self._of_module: dict[str, Bound | None] = {}
        self._known: list[Callback] = [*callbacks]
        self._known_ids = list(map(id, callbacks))
        self._attached: list[Callback] | None = None
        self._in_programs = False

    def attach(self) -> None:
        """Make `self.log` of the callbacks the module's; also of those that come to their list from now on."""
        self._attached = []
        for callback in self._known:
            self._attach(callback)

    def _attach(self, callback: Callback) -> None:
        if self._attached is not None and not any(callback is one for one in self._attached):
            self._attached.append(callback)
            warn_of_misspelt(callback)
            callback.log, callback.log_dict = self._module.log, self._module.log_dict

    def detach(self) -> None:
        """Take `self.log` from the callbacks."""
        for callback in self._attached or ():
            del callback.log, callback.log_dict
        self._attached = None

    def follow(self, callbacks: list[Callback]) -> None:
        """Call the hooks of these callbacks from now on."""
        self._callbacks = callbacks

    def look(self) -> None:
        """Notice callbacks that hooks have put into their list, or taken out."""
        if list(map(id, self._callbacks)) == self._known_ids:  # in C, because hooks of every step come by
            return
        for callback in self._callbacks:
            if not any(callback is one for one in self._known):
                require_callback(callback)
                self._require_seen_by_programs(callback)
                self._attach(callback)
        self._known, self._known_ids, self._of_callbacks = [*self._callbacks], list(map(id, self._callbacks)), {}

    def _require_seen_by_programs(self, callback: Callback) -> None:
        late = [name for name in IN_STEPS if self._in_programs and overrides(callback, name, Callback)]
        if late:
            raise MisconfigurationException(
                f"{type(callback).__name__} was put into trainer.callbacks after the first training step, and overrides "
                f"{late[0]}, which runs inside the step: the step's program is made without it. Put it there in `setup`, "
                "or pass it to Trainer(callbacks=[...])."
            )

    def callbacks(self, name: str, *args: Any) -> None:
        """Call a hook of the callbacks, with the trainer and the module as first arguments."""
        if not self.overridden(name):  # before every step some are asked for that nobody has
            return
        for hook in self._as_they_come(name):
            self._call(hook, name, args, self._trainer, self._module, *args)

    def callbacks_of_stage(self, name: str, stage: str) -> None:
        """Call `setup` or `teardown` of the callbacks, which take the stage by its name, as in Lightning."""
        for hook in self._as_they_come(name):
            self._call(hook, name, (stage,), self._trainer, self._module, stage=stage)

    def _as_they_come(self, name: str) -> Iterator[Bound]:
        """The overridden hooks, as a loop over a list that one of them may change sees them; not over one put in its place."""
        hooks, listed, taken = self.overridden(name), self._callbacks, 0
        while taken < len(hooks):
            yield hooks[taken]
            taken += 1
            if listed is self._callbacks:
                hooks = self.overridden(name)

    def callbacks_where(self, chosen: Callable[[Callback], bool], name: str) -> None:
        """Call a hook of some of the callbacks."""
        self.look()
        for callback in self._known:
            if chosen(callback):
                self._call(self._of_callback(callback, name), name, (), self._trainer, self._module)

    def module(self, name: str, *args: Any) -> Any:
        """Call a hook of the module, where it is overridden."""
        hook = self.module_hook(name)
        return self._call(hook, name, args, *args) if hook is not None else None

    def module_or_default(self, name: str) -> Any:
        """Call a hook of the module whose default does something."""
        return getattr(self._module, name)() if self.module_hook(name) is None else self.module(name)

    def _call(self, hook: Bound, name: str, args: tuple[Any, ...], *passed: Any, **named: str) -> Any:
        previous, self.running = self.running, (name, args)
        try:
            return called(hook, name, *passed, **named)
        finally:
            self.running = previous

    def both(self, name: str, *args: Any) -> Any:
        """Call the callbacks' hook, then the module's; returns what the module returned."""
        self.callbacks(name, *args)
        return self.module(name, *args)

    def overridden(self, name: str) -> list[Bound]:
        """The callbacks' methods for a hook, without those that do nothing."""
        self.look()
        if name not in self._of_callbacks:
            assert hasattr(Callback, name), f"{name} is no hook of callbacks"
            chosen = [callback for callback in self._known if overrides(callback, name, Callback)]
            self._of_callbacks[name] = [self._of_callback(callback, name) for callback in chosen]
        return self._of_callbacks[name]

    def in_steps(self) -> list[tuple[str, Callback, list[Bound]]]:
        """The callbacks with hooks inside the step: a name for each, the callback, and these hooks."""
        self.look()
        self._in_programs = True
        found: list[tuple[str, Callback, list[Bound]]] = []
        for number, callback in enumerate(self._known):
            hooks = [getattr(callback, name) for name in IN_STEPS if overrides(callback, name, Callback)]
            if hooks:
                found.append((f"callbacks[{number}] ({type(callback).__name__})", callback, hooks))
        return found

    def module_hook(self, name: str) -> Bound | None:
        """The module's method for a hook, or None where it does nothing."""
        if name not in self._of_module:
            own = overrides(self._module, name, LightningModule)
            self._of_module[name] = (
                self._named(with_index_where_taken(getattr(self._module, name), name), name) if own else None
            )
        return self._of_module[name]

    def data_hook(self, name: str) -> Bound | None:
        """The method for a hook that changes batches, of the datamodule or else the module; None where it does nothing."""
        if name not in self._of_data:
            self._of_data[name] = self._chosen_data_hook(name)
        return self._of_data[name]

    def _chosen_data_hook(self, name: str) -> Bound | None:
        own, datamodule = self.module_hook(name), self._datamodule
        if datamodule is None:
            return own
        overridden = overrides(datamodule, name, LightningDataModule)
        if own is not None:
            modules, datas = f"{type(self._module).__name__}.{name}", f"{type(datamodule).__name__}.{name}"
            used = f"{datas}, and not through {modules}" if overridden else f"{modules}: {datas} is not overridden"
            warnings.warn(f"Batches go through {used}.", stacklevel=2)
        if not overridden:
            return own
        hook = getattr(datamodule, name)
        if self._profiler is None:
            return hook
        return profiled(hook, self._profiler, f"[LightningDataModule]{type(datamodule).__name__}.{name}")

    def _of_callback(self, callback: Callback, name: str) -> Bound:
        hook = with_index_where_taken(getattr(callback, name), name)
        return hook if self._profiler is None else profiled(hook, self._profiler, f"[Callback]{callback.state_key}.{name}")

    def _named(self, hook: Bound, name: str) -> Bound:
        if self._profiler is None:
            return hook
        return profiled(hook, self._profiler, f"[LightningModule]{type(self._module).__name__}.{name}")

    def anybody(self, name: str) -> bool:
        """Whether a hook is overridden at all."""
        return bool(self.overridden(name)) or self.module_hook(name) is not None


def step_arguments(function: Bound, batch: Any, batch_idx: Any, dataloader_idx: int, several: bool) -> list[Any]:
    """The positional arguments for a `*_step`: the batch, and as many indices as it takes.

    Args:
        function: the step.
        batch: its first argument.
        batch_idx: its second one.
        dataloader_idx: its third one where there are several loaders, or the step cannot do without.
        several: whether there are.
    """
    parameters = [
        p for p in inspect.signature(function).parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    variadic = any(p.kind is p.VAR_POSITIONAL for p in inspect.signature(function).parameters.values())
    required = any(p.name == "dataloader_idx" and p.default is p.empty for p in parameters)
    available = [batch, batch_idx, dataloader_idx][: 2 + (several or required)]
    return available if variadic else available[: max(1, len(parameters))]


def profiled(hook: Callable[..., Any], profiler: Profiler, action: str) -> Callable[..., Any]:
    """A hook whose calls are one action of the profiler."""

    @functools.wraps(hook)
    def call(*args: Any, **named: str) -> Any:
        with profiler.profile(action):
            return hook(*args, **named)

    return call
