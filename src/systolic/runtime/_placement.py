"""The devices of a run: where its batches go, and where each tensor of its state lies."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import jax
import numpy as np
import torch
from jax.sharding import PartitionSpec, Sharding
from jax.typing import DTypeLike

from ..distributed import process_count
from ..exceptions import MisconfigurationException
from ..sharding import (
    DATA_PARALLEL,
    StateEntry,
    StateLayout,
    batch_parts,
    batch_spec,
    make_mesh,
    sharding_on,
    split_batch,
)
from ._cells import Buffer, Cell, describe_cells, make_cells
from ._convert import put
from ._device_tensor import DeviceTensor, move_in_place
from ._dimension_order import lies_at, place_of
from ._transfers import observers, tell_sent

if TYPE_CHECKING:
    from ..utilities._jax_internals import Device


def default_matmul_precision(platform: str) -> str:
    """The word for JAX: on a GPU what PyTorch computes in, "default" elsewhere.

    A GPU's "default" rounds the operands to TensorFloat-32, which eager PyTorch does only where it was told to, by
    `torch.set_float32_matmul_precision`.

    Args:
        platform: "tpu", "gpu" or "cpu".

    Example:
        >>> default_matmul_precision("cpu"), default_matmul_precision("gpu")
        ('default', 'highest')
    """
    if platform != "gpu":
        return "default"
    said = torch.get_float32_matmul_precision()
    return {"medium": "default"}.get(said, said)


class Placement:
    """The devices of a run, seen as one.

    Attributes:
        mesh: all devices, along named axes.
        whole: every device holds the whole array: random keys, numbers, batches that do not divide.
        batch_shards: how many groups batch normalisation sees: as many as a batch has parts, or 1 when it is synchronised.
        shares_host_memory: whether programs read host arrays as they are, so that there is nothing to copy ahead.
        matmul_precision: how exact float32 products are: "default", "high" or "highest".
        shared_memory: cells of tensors that were different views of one memory before they were moved.
        key: the random key that the next step uses.
        is_shared: whether other processes drive some of the devices, so that all must run the same programs.
        names_lines: whether compiled programs are read by somebody who asks for lines of the user's code.
        moves_state: whether programs bring tensors of the state to where the rule wants them.
    """

    names_lines = False
    moves_state = True

    def __init__(
        self,
        devices: Sequence[Device],
        *,
        seed: int = 0,
        sync_batchnorm: bool = False,
        matmul_precision: str | None = None,
        layout: StateLayout = DATA_PARALLEL,
    ) -> None:
        self.devices = list(devices)
        self.mesh = make_mesh(self.devices, layout.shape)
        self.whole = sharding_on(self.mesh, PartitionSpec())
        self._split = sharding_on(self.mesh, split_batch(self.mesh))
        self._rule = layout.rule
        self.batch_shards = 1 if sync_batchnorm else batch_parts(self.mesh)
        self.platform = self.devices[0].platform
        self.is_shared = process_count() > 1 and len({device.process_index for device in self.devices}) > 1
        self.matmul_precision = matmul_precision or default_matmul_precision(self.platform)
        self.shares_host_memory = self.platform == "cpu" and len(self.devices) == 1
        # on a TPU "rbg" uses the hardware's generator; on a CPU threefry is the faster one of the two
        generator = "threefry2x32" if self.platform == "cpu" else "rbg"
        self.shared_memory: list[list[Cell]] = []
        self.key = Buffer(self.replicate(jax.random.key(seed, impl=generator)))

    def random_state(self) -> np.ndarray[Any, Any]:
        """The random key as numbers, for checkpoints; waits for the devices."""
        return np.asarray(jax.random.key_data(self.key.array))  # host sync: a checkpoint is written

    def restore_random_state(self, numbers: np.ndarray[Any, Any]) -> None:
        """Continue with the key that `random_state` gave, here or on another kind of device.

        Generators differ in the size of their keys; one of another kind gets a key that is determined by this one.
        """
        size = jax.random.key_data(self.key.array).shape
        data = jax.numpy.asarray(np.resize(numbers.astype(np.uint32), size))
        key = jax.random.wrap_key_data(data, impl=jax.random.key_impl(self.key.array))
        self.key.array = self.replicate(key)

    def replicate(self, array: Any) -> jax.Array:
        """Copy a host array to every device."""
        return put(array, self.whole)

    def shard(self, array: np.ndarray[Any, Any], *, is_final: bool = False, parts: int = 1) -> Any:
        """Split a host array's first dimension over the devices; an array that does not divide goes to all of them.

        Where programs share the host's memory the array stays there: passing it costs 4 us, putting it on the device 70.

        Args:
            array: the values.
            is_final: nobody writes to the array any more, so that it need not be copied.
            parts: how many processes hold a part each, along the first dimension; 1 where each holds the whole array.
        """
        began = time.perf_counter()
        if not is_final:
            # JAX reads host memory later, while the loader may fill it with the next batch already
            array = np.array(array)
        if self.shares_host_memory:
            if observers:
                tell_sent(array.nbytes, began)
            return array
        return put(array, self._split if parts > 1 else self.batch_sharding(array.shape), parts)

    def move(self, parameters: Mapping[str, torch.nn.Parameter]) -> None:
        """Move parameters to the devices, by their names; those that are there already stay."""
        moving = {name: p for name, p in parameters.items() if not isinstance(p, DeviceTensor)}
        shapes = {name: tuple(parameter.shape) for name, parameter in moving.items()}
        shardings = [self.state_sharding(StateEntry(n, shape, "parameter", n, shape)) for n, shape in shapes.items()]
        cells = make_cells([p.detach() for p in moving.values()], shardings)
        for parameter, cell in zip(moving.values(), cells, strict=True):
            move_in_place(parameter, cell)

    def move_with_gradients(self, parameters: Mapping[str, torch.nn.Parameter], gradients: Mapping[str, torch.Tensor]) -> None:
        """Move parameters to the devices and give them gradients there: an object that is a gradient cannot be moved."""
        self.move(parameters)
        shapes = {name: tuple(parameter.shape) for name, parameter in parameters.items()}
        shardings = [self.state_sharding(StateEntry(f"{n}.grad", shape, "gradient", n, shape)) for n, shape in shapes.items()]
        values = [gradients[name].detach() for name in parameters]
        for parameter, cell in zip(parameters.values(), make_cells(values, shardings), strict=True):
            parameter.grad = DeviceTensor(cell)

    def as_state_lies(self) -> Self:
        """The same devices, for programs that know the tensors of the state by other names: they take them where they lie."""
        other = copy.copy(self)
        other.moves_state = False
        return other

    def place_like(self, tensors: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> None:
        """Move tensors to where others of the same shape lie; those that are there already, or that have no such other, stay.

        Args:
            tensors: copies of tensors of the state.
            others: for each the tensor that it is a copy of.
        """
        pairs = [
            (tensor, other._cell.buffer.array.sharding)
            for tensor, other in zip(tensors, others, strict=True)
            if not isinstance(tensor, DeviceTensor) and isinstance(other, DeviceTensor) and tensor.shape == other.shape
            if isinstance(other._cell, Cell) and other._cell.offset < 0
        ]
        cells = make_cells([tensor.detach() for tensor, _ in pairs], [sharding for _, sharding in pairs])
        for (tensor, _), cell in zip(pairs, cells, strict=True):
            move_in_place(tensor, cell)

    def cells(self, tensors: Sequence[torch.Tensor], entries: Sequence[StateEntry]) -> list[Cell]:
        """Cells where the values of tensors of the state lie.

        Raises:
            MisconfigurationException: they lie with others on other devices, as the state of a run that has not ended does.
        """
        cells = [_cell(tensor) for tensor in tensors]
        self._require_own(cells, entries)
        if not self.moves_state:
            return cells
        for cell, entry in zip(cells, entries, strict=True):
            wanted = place_of(self.state_sharding(entry), entry.shape)
            # what an optimizer of the user's own created in its first step lies where XLA left it
            if cell.offset < 0 and not lies_at(cell.buffer.array, wanted):
                with jax.enable_x64(True):  # without, JAX copies the half of an int64 array, and still calls it one
                    cell.buffer.array = jax.device_put(cell.buffer.array, wanted)
        return cells

    def _require_own(self, cells: Sequence[Cell], entries: Sequence[StateEntry]) -> None:
        own = set(self.devices)
        for cell, entry in zip(cells, entries, strict=True):
            found = cell.buffer.array.sharding.device_set
            if found != own and cell.offset >= 0:  # what has a buffer for itself is brought here
                raise MisconfigurationException(
                    f"{entry.name} lies on {_named(found)}, and this run uses {_named(own)}. Another run or a function of "
                    "systolic.jit has it, and has not ended. Give this one the same `devices`, let it have a copy of the "
                    "module (copy.deepcopy), or start it when the other has ended."
                )

    def batch_sharding(self, shape: Sequence[int]) -> Sharding:
        """How a tensor of a batch lies: split along its first dimension where that divides, else whole everywhere."""
        return self._split if batch_spec(shape, self.mesh) else self.whole  # made once: this is asked for every batch

    def state_sharding(self, entry: StateEntry) -> Sharding:
        """How a tensor of the state lies, by the run's rule.

        Raises:
            ValueError: the rule splits a dimension that does not divide over the devices.
        """
        spec = self._rule(entry)
        for size, axes in zip(entry.shape, spec, strict=False):
            parts = math.prod(self.mesh.shape[axis] for axis in ((axes,) if isinstance(axes, str) else axes or ()))
            if size % parts:
                raise ValueError(
                    f"The rule for {entry.name} of shape {entry.shape} is {spec}, which splits a dimension of {size} over "
                    f"{parts} devices. Split a dimension that divides, or leave this tensor whole: PartitionSpec()."
                )
        return sharding_on(self.mesh, spec)


def _cell(tensor: torch.Tensor) -> Cell:
    assert isinstance(tensor, DeviceTensor), "a tensor of the state was not moved to the devices"
    assert isinstance(tensor._cell, Cell), "a view cannot be part of the state"
    return tensor._cell


class AbstractPlacement(Placement):
    """Devices that are not here (those of a compile-only topology): what would be copied to them is described instead.

    Programs can be lowered and compiled for them; nothing is moved, and nothing can run.
    """

    names_lines = True

    def replicate(self, array: Any) -> Any:
        """Describe a host array as it would lie on every device."""
        return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=self.whole)

    def shard(self, array: np.ndarray[Any, Any], *, is_final: bool = False, parts: int = 1) -> Any:
        """Describe a host array as it would be split over the devices."""
        return self.describe(array.shape, array.dtype)

    def cells(self, tensors: Sequence[torch.Tensor], entries: Sequence[StateEntry]) -> list[Cell]:
        """Cells where the values of these tensors, which stay where they are, would lie."""
        described = [(tensor.shape, tensor.dtype) for tensor in tensors]
        return describe_cells(described, [self.state_sharding(entry) for entry in entries], [entry.kind for entry in entries])

    def describe(self, shape: Sequence[int], dtype: DTypeLike) -> jax.ShapeDtypeStruct:
        """A tensor of a batch, by its shape and JAX dtype."""
        return jax.ShapeDtypeStruct(tuple(shape), dtype, sharding=self.batch_sharding(shape))


def _named(devices: Collection[Device]) -> str:
    """A few of some devices, for messages."""
    texts = sorted(map(str, devices))
    return ", ".join(texts[:4]) + (f" and {len(texts) - 4} more" if len(texts) > 4 else "")
