"""What each of some processes sees of the others; printed as JSON."""

from __future__ import annotations

import json

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from systolic import distributed as d

d.join_processes()
d.join_processes()  # a second call does nothing
index = d.process_index()
mesh = Mesh(np.array(jax.devices()), ("data",))
values = np.arange(32, dtype=np.float32).reshape(8, 4)
split = d.make_global_array(values, NamedSharding(mesh, PartitionSpec("data")))
whole = d.make_global_array(values, NamedSharding(mesh, PartitionSpec()))
d.barrier("before the end")
print(  # noqa: T201
    json.dumps(
        {
            "index": index,
            "count": d.process_count(),
            "main": d.is_main_process(),
            "local": len(d.local_devices(jax.devices())),
            "devices": len(jax.devices()),
            "any": [d.agree(index == 1), d.agree(False), d.agree(True)],
            "all": [d.agree(index == 1, "all"), d.agree(True, "all")],
            "broadcast": [d.broadcast({"from": index}), d.broadcast([index], source=1)],
            "gathered": [d.gather_to_host(a).tolist() == values.tolist() for a in (split, whole)],
            "own_rows": [shard.data.shape[0] for shard in split.addressable_shards],
        }
    )
)
