"""Arrays that are split over the devices come to the host whole."""

from __future__ import annotations

import jax
import numpy as np
import pytest
import torch
from jax.sharding import NamedSharding, PartitionSpec

from systolic.runtime._cells import make_cells
from systolic.runtime._convert import copy_to_host, to_host_array
from systolic.runtime._placement import Placement

SPECS = [PartitionSpec(), PartitionSpec("data"), PartitionSpec(None, "data")]


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_a_split_array_is_gathered(spec: PartitionSpec) -> None:
    values = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
    array = jax.device_put(values, NamedSharding(Placement(jax.devices()).mesh, spec))
    np.testing.assert_array_equal(copy_to_host(array), values)
    np.testing.assert_array_equal(to_host_array(array), values)


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_a_snapshot_of_a_split_tensor_is_whole(spec: PartitionSpec) -> None:
    tensor = torch.randn(64, 64)
    (cell,) = make_cells([tensor], [NamedSharding(Placement(jax.devices()).mesh, spec)])
    assert torch.equal(cell.snapshot(), tensor)
