"""Values for the tensors that a module made on the meta device, by the own initialisation of each submodule."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import nn

from ..exceptions import MisconfigurationException
from ..runtime import DeviceTensor, Placement, bring_back, make_cells, move_in_place, replace_value
from ..sharding import StateEntry

# What is smaller waits on the host for the first step, which packs small tensors together.
_MOVED_BYTES = 64 * 1024

Dtypes = dict[int, torch.dtype]


def meta_dtypes(root: nn.Module) -> Dtypes:
    """The dtypes of the meta tensors of a module by their ids, before a precision converts it: values are drawn in these."""
    return {id(t): t.dtype for module in root.modules() for _, t in _own_tensors(module) if t.is_meta}


def give_values(root: nn.Module, dtypes: Dtypes, placement: Placement | None) -> None:
    """Initialise the submodules that hold meta tensors, one after the other; what has values stays as it is.

    The host holds the tensors of one submodule at a time: large parameters go to the devices before the next one is made.

    Args:
        root: the module. Its tensor objects stay, and with them what is tied.
        dtypes: by `meta_dtypes`.
        placement: where large parameters go; None leaves all on the host.

    Raises:
        MisconfigurationException: a submodule has no way to initialise its tensors, or left some of them without values.
    """
    pending = [(name, module) for name, module in _children_first(root, "") if any(t.is_meta for _, t in _own_tensors(module))]
    # before any is filled: a refused module is left as the user made it
    resets = [_reset_of(root, name, module) for name, module in pending]
    names = {id(parameter): name for name, parameter in root.named_parameters()}
    for (name, module), reset in zip(pending, resets, strict=True):
        fresh = _initialise(module, reset, dtypes, _shown(name, root))
        if placement is not None:
            _move([p for p in fresh if isinstance(p, nn.Parameter) and p.nbytes > _MOVED_BYTES], names, placement)


def _initialise(module: nn.Module, reset: Callable[[], object], dtypes: Dtypes, shown: str) -> list[torch.Tensor]:
    """Give values to the meta tensors of one submodule, and return them."""
    fresh: dict[str, tuple[torch.Tensor, torch.dtype]] = {}
    tied: dict[str, torch.Tensor] = {}
    for key, tensor in _own_tensors(module):
        if tensor.is_meta:
            fresh[key] = tensor, tensor.dtype
            replace_value(tensor, _empty(tensor, dtypes.get(id(tensor), tensor.dtype)))
        elif id(tensor) in dtypes:
            # of an earlier submodule, which it shares: the constructor drew numbers for its own, that the tie then dropped
            tied[key] = tensor
            _held(module, key)[key] = _empty(tensor, dtypes[id(tensor)])
    versions = {key: tensor._version for key, (tensor, _) in fresh.items()}
    try:
        with torch.no_grad():
            reset()
    finally:
        for key, tensor in tied.items():
            _held(module, key)[key] = tensor
    for key, (tensor, dtype) in fresh.items():
        if getattr(module, key) is tensor and _is_unfilled(tensor, versions[key]):
            raise MisconfigurationException(
                f"`{type(module).__name__}.reset_parameters` left {key!r} of {shown}, which was on the meta device, without "
                f"values. Expected: it fills every parameter and buffer of the submodule. Fill {key!r} there, or make it "
                "outside `torch.device('meta')`."
            )
        if tensor.dtype != dtype:
            tensor.data = tensor.data.to(dtype)
    return [tensor for tensor, _ in fresh.values()]


def _move(parameters: list[nn.Parameter], names: dict[int, str], placement: Placement) -> None:
    for parameter in parameters:
        name, shape = names[id(parameter)], tuple(parameter.shape)
        sharding = placement.state_sharding(StateEntry(name, shape, "parameter", name, shape))
        (cell,) = make_cells([parameter.detach()], [sharding], ["parameter"])
        move_in_place(parameter, cell)


def bring_back_all(root: nn.Module) -> None:
    """Give a module ordinary tensors again, where the run ended before any step took them."""
    for tensor in (*root.parameters(), *root.buffers()):
        if isinstance(tensor, DeviceTensor):
            bring_back(tensor)


def _children_first(module: nn.Module, name: str, seen: set[int] | None = None) -> Iterator[tuple[str, nn.Module]]:
    # a constructor initialises its own parameters when its children are made, and draws random numbers in this order
    seen = set() if seen is None else seen
    if id(module) in seen:
        return
    seen.add(id(module))
    for key, child in module.named_children():
        yield from _children_first(child, f"{name}.{key}" if name else key, seen)
    yield name, module


def _own_tensors(module: nn.Module) -> list[tuple[str, torch.Tensor]]:
    return [(key, t) for held in (module._parameters, module._buffers) for key, t in held.items() if t is not None]


def _held(module: nn.Module, key: str) -> dict[str, torch.Tensor | None]:
    return module._parameters if key in module._parameters else module._buffers  # pyright: ignore[reportReturnType]


def _reset_of(root: nn.Module, name: str, module: nn.Module) -> Callable[[], object]:
    for outer_name, outer in root.named_modules():
        if callable(getattr(outer, "_init_weights", None)) and f"{name}.".startswith(f"{outer_name}." if outer_name else ""):
            raise MisconfigurationException(
                f"{_shown(name, root)} is on the meta device, in a {type(outer).__name__}, which initialises its submodules by "
                "`_init_weights`. Expected: submodules that initialise themselves by `reset_parameters`. Make the model "
                "without `torch.device('meta')`; `trainer.preflight` takes it as it is."
            )
    for method in ("reset_parameters", "_reset_parameters"):  # the second is that of nn.MultiheadAttention
        reset = getattr(module, method, None)
        if callable(reset):
            return reset
    tensors = ", ".join(repr(key) for key, tensor in _own_tensors(module) if tensor.is_meta)
    raise MisconfigurationException(
        f"{tensors} of {_shown(name, root)} ({type(module).__name__}) on the meta device cannot be initialised: the class has "
        "no `reset_parameters`. Expected: a method that fills the submodule's own parameters and buffers. Write it, or make "
        "the submodule without `torch.device('meta')`, or give it values in `configure_model`: `self.to_empty(device='cpu')`, "
        "then its own initialisation or `load_state_dict`. `trainer.preflight` takes it as it is."
    )


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
