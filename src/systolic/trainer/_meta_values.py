"""Values for the tensors that a module made on the meta device, by the own initialisation of each submodule."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import torch
from torch import nn

from ..exceptions import MisconfigurationException
from ..runtime import DeviceTensor, Placement, bring_back, replace_value, send_changes

# What is smaller waits on the host for the first step, which packs small tensors together.
_MOVED_BYTES = 64 * 1024

_INIT_WEIGHTS = "_init_weights"  # of a model: initialises one of its submodules

Dtypes = dict[tuple[int, str], torch.dtype]


def meta_dtypes(root: nn.Module) -> Dtypes:
    """The dtypes of a module's meta tensors before a precision converts it, which values are drawn in.

    They go by the id of the submodule and the name in it: a conversion puts other objects in the places of buffers.
    """
    return {(id(module), key): t.dtype for module in root.modules() for key, t in _own_tensors(module) if t.is_meta}


def give_values(root: nn.Module, dtypes: Dtypes, placement: Placement | None) -> None:
    """Initialise the submodules that hold meta tensors, one after the other; what has values stays as it is.

    The host holds the tensors of one submodule at a time: large parameters go to the devices before the next one is made. The
    numbers are those that the constructors would have drawn on the CPU: children first, and a model of transformers, as it
    ends its constructor, once more by `_init_weights`.

    Args:
        root: the module. Its tensor objects stay, and with them what is tied.
        dtypes: by `meta_dtypes`.
        placement: where large parameters go; None leaves all on the host.

    Raises:
        MisconfigurationException: a submodule has no way to initialise its tensors, or left some of them without values.
    """
    order = list(_children_first(root, "", None, set()))
    writers = [(name, module) for name, module in root.named_modules() if callable(getattr(module, _INIT_WEIGHTS, None))]
    names = {id(parameter): name for name, parameter in root.named_parameters()}
    values = _Values(root, dtypes, placement, names)
    resets: dict[int, Callable[[], object]] = {}
    for name, module, model in order:
        # before any is filled: a refused module is left as the user made it
        if values.note_meta(module) and model is None:
            resets[id(module)] = _reset_of(root, name, module, writers)
    for name, module, model in order:
        if id(module) in resets:
            values.fill(name, module, resets[id(module)])
        elif id(module) in values.pending:
            values.draw(module)
        if module is model:
            values.end_constructor(name, module)


@dataclass
class _Values:
    """A module whose meta tensors are being given values.

    Attributes:
        root: the module.
        dtypes: by `meta_dtypes`.
        placement: where large parameters go.
        names: of its parameters, by their ids.
        owners: of each meta tensor, by its id, the id of the first submodule that has it: the others' constructors drew numbers
            for tensors of their own, which a tie then dropped.
        pending: ids of the submodules that had meta tensors.
        drew: of submodules of transformers' models, the generator's state from which their constructors drew.
        initialised: ids of submodules that `_init_weights` has seen.
    """

    root: nn.Module
    dtypes: Dtypes
    placement: Placement | None
    names: dict[int, str]
    owners: dict[int, int] = field(default_factory=dict[int, int])
    pending: set[int] = field(default_factory=set[int])
    drew: dict[int, torch.Tensor] = field(default_factory=dict[int, torch.Tensor])
    initialised: set[int] = field(default_factory=set[int])

    def note_meta(self, module: nn.Module) -> bool:
        """Remember a submodule's meta tensors; returns whether it has some."""
        found = [tensor for _, tensor in _own_tensors(module) if tensor.is_meta]
        for tensor in found:
            self.owners.setdefault(id(tensor), id(module))
        if found:
            self.pending.add(id(module))
        return bool(found)

    def fill(self, name: str, module: nn.Module, reset: Callable[[], object]) -> None:
        """Give values to the meta tensors of one submodule, and move the large ones."""
        fresh = self._initialise(module, reset, _shown(name, self.root))
        if self.placement is not None:
            large = [p for p in fresh if isinstance(p, nn.Parameter) and p.nbytes > _MOVED_BYTES]
            self.placement.move({self.names[id(p)]: p for p in large})

    def _initialise(self, module: nn.Module, reset: Callable[[], object], shown: str) -> list[torch.Tensor]:
        """Give values to the meta tensors of one submodule, and return them."""
        fresh: dict[str, tuple[torch.Tensor, torch.dtype]] = {}
        tied: list[str] = []
        for key, tensor in _own_tensors(module):
            if self.owners.get(id(tensor), id(module)) != id(module):
                tied.append(key)
            elif tensor.is_meta:
                fresh[key] = tensor, tensor.dtype
                replace_value(tensor, _empty(tensor, self.dtypes[id(module), key]))
        versions = {key: tensor._version for key, (tensor, _) in fresh.items()}
        with _scratch(module, tied, self.dtypes), torch.no_grad():
            reset()
        for key, (tensor, dtype) in fresh.items():
            if getattr(module, key) is tensor and _is_unfilled(tensor, versions[key]):
                raise MisconfigurationException(
                    f"The initialisation of a {type(module).__name__} left {key!r} of {shown}, which was on the meta device, "
                    "without values. Expected: `reset_parameters` (in models of transformers `_init_weights`) fills every "
                    f"parameter and buffer of the submodule. Fill {key!r} there, or make it outside `torch.device('meta')`."
                )
            if tensor.dtype != dtype:
                tensor.data = tensor.data.to(dtype)
        return [tensor for tensor, _ in fresh.values()]

    def draw(self, module: nn.Module) -> None:
        """Let a submodule draw what its constructor would, and drop it until `_init_weights` follows."""
        reset = _own_reset(module)
        if reset is None:
            return
        self.drew[id(module)] = torch.get_rng_state()
        with _scratch(module, [key for key, _ in _own_tensors(module)], self.dtypes), torch.no_grad():
            reset()

    def end_constructor(self, name: str, model: nn.Module) -> None:
        """Initialise what no model within this one has initialised, as `post_init` does."""
        for inner_name, module, owner in _children_first(model, name, None, set()):
            if id(module) in self.initialised:
                continue
            self.initialised.add(id(module))
            assert owner is not None, "within a model"
            if id(module) in self.pending:
                self.fill(inner_name, module, functools.partial(self._init_weights, module, owner))
            elif not _own_tensors(module) and any(id(p) in self.owners for p in module.parameters()):
                with torch.no_grad():
                    getattr(owner, _INIT_WEIGHTS)(module)  # GPT-2's blocks scale weights of their children
                _send_changes(module)

    def _init_weights(self, module: nn.Module, owner: nn.Module) -> None:
        reset, state = _own_reset(module), self.drew.get(id(module))
        if reset is not None and state is not None:
            # what `_init_weights` leaves alone has the constructor's values
            with torch.random.fork_rng(devices=[]):
                torch.set_rng_state(state)
                reset()
        getattr(owner, _INIT_WEIGHTS)(module)


def _is_pretrained(module: nn.Module) -> bool:
    library = sys.modules.get("transformers.modeling_utils")  # there is no such model where it was not imported
    return library is not None and isinstance(module, library.PreTrainedModel)


def _send_changes(module: nn.Module) -> None:
    for parameter in module.parameters():
        if isinstance(parameter, DeviceTensor):
            send_changes(parameter)


@contextlib.contextmanager
def _scratch(module: nn.Module, keys: Iterable[str], dtypes: Dtypes) -> Iterator[None]:
    """Inside the block, a submodule has other tensors under these names."""
    kept: dict[str, torch.Tensor] = {key: getattr(module, key) for key in keys}
    for key, tensor in kept.items():
        setattr(module, key, _empty(tensor, dtypes.get((id(module), key), tensor.dtype)))
    try:
        yield
    finally:
        for key, tensor in kept.items():
            setattr(module, key, tensor)


@dataclass
class Placed:
    """A module that may hold parameters which were put on the devices before any step took them.

    Attributes:
        module: the module.
    """

    module: nn.Module

    def release(self) -> None:
        """Give the module ordinary tensors again."""
        for tensor in (*self.module.parameters(), *self.module.buffers()):
            if isinstance(tensor, DeviceTensor):
                bring_back(tensor)


def _children_first(
    module: nn.Module, name: str, model: nn.Module | None, seen: set[int]
) -> Iterator[tuple[str, nn.Module, nn.Module | None]]:
    """The submodules with their names and the models of transformers that they are in, in the order of construction.

    A constructor initialises its own parameters when its children are made, and draws random numbers in this order.
    """
    if id(module) in seen:
        return
    seen.add(id(module))
    inner = module if _is_pretrained(module) else model
    for key, child in module.named_children():
        yield from _children_first(child, f"{name}.{key}" if name else key, inner, seen)
    yield name, module, inner


def _own_tensors(module: nn.Module) -> list[tuple[str, torch.Tensor]]:
    return [(key, t) for held in (module._parameters, module._buffers) for key, t in held.items() if t is not None]


def _reset_of(root: nn.Module, name: str, module: nn.Module, writers: list[tuple[str, nn.Module]]) -> Callable[[], object]:
    for outer_name, outer in writers:
        if f"{name}.".startswith(f"{outer_name}." if outer_name else ""):
            raise MisconfigurationException(
                f"{_shown(name, root)} is on the meta device, in a {type(outer).__name__}, which initialises its submodules by "
                "`_init_weights`. Expected: submodules that initialise themselves by `reset_parameters`. Make the model "
                "without `torch.device('meta')`; `trainer.preflight` takes it as it is."
            )
    reset = _own_reset(module)
    if reset is not None:
        return reset
    tensors = ", ".join(repr(key) for key, tensor in _own_tensors(module) if tensor.is_meta)
    raise MisconfigurationException(
        f"{tensors} of {_shown(name, root)} ({type(module).__name__}) on the meta device cannot be initialised: the class has "
        "no `reset_parameters`. Expected: a method that fills the submodule's own parameters and buffers. Write it, or make "
        "the submodule without `torch.device('meta')`, or give it values in `configure_model`: `self.to_empty(device='cpu')`, "
        "then its own initialisation or `load_state_dict`. `trainer.preflight` takes it as it is."
    )


def _own_reset(module: nn.Module) -> Callable[[], object] | None:
    for method in ("reset_parameters", "_reset_parameters"):  # the second is that of nn.MultiheadAttention
        reset = getattr(module, method, None)
        if callable(reset):
            return reset
    library = sys.modules.get("transformers.pytorch_utils")
    if library is not None and isinstance(module, library.Conv1D):  # GPT-2's, whose constructor draws by itself
        return lambda: nn.init.normal_(module.get_parameter("weight"), std=0.02)
    return None


def _shown(name: str, root: nn.Module) -> str:
    return f"the submodule {name!r} of {type(root).__name__}" if name else type(root).__name__


def _empty(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    empty = torch.empty(tensor.shape, dtype=dtype, device="cpu")
    if dtype.is_floating_point or dtype.is_complex:
        empty.fill_(torch.nan)  # writes through `.data` change no version: they are seen by the values
    if not isinstance(tensor, nn.Parameter):
        return empty
    return nn.Parameter(empty, tensor.requires_grad)


def _is_unfilled(tensor: torch.Tensor, version: int) -> bool:
    if tensor.is_floating_point() or tensor.is_complex():
        return bool(torch.isnan(tensor).any())
    return tensor.numel() > 0 and tensor._version == version
