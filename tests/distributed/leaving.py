"""Two processes, of which one ends while the other waits for values on the devices of both; nothing here counts steps."""

from __future__ import annotations

import sys
import time

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from systolic import distributed
from systolic.utilities._jax_internals import multihost_utils

distributed.join_processes()
split = NamedSharding(Mesh(np.array(jax.devices()), ("data",)), PartitionSpec("data"))
rows = distributed.make_global_array(np.ones((8, 2), np.float32), split)
total = jax.jit(lambda rows: rows.sum())
assert float(total(rows)) == 16.0  # of a second call JAX's Python knows nothing
if distributed.process_index() == 0:
    match sys.argv[2]:
        case "program":
            total(rows).block_until_ready()
        case "gathered array":
            multihost_utils.process_allgather(rows, tiled=True)
        case "own work":
            time.sleep(25)
