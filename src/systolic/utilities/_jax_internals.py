"""The door to JAX's insides: each private or experimental name that systolic uses, and what for.

A release of JAX that moves one of them is answered here. Pallas and its attention kernels are imported where they are used,
`compiler/kernels`: importing them takes half a second.
"""

from __future__ import annotations

# the keys of the cache on disk, and who writes what it compiled: process 0 alone
from jax._src import cache_key as cache_key
from jax._src import compiler as compiler

# lets JAX start again, with more simulated cores; what lies on the old ones stays there; `jax.extend` has it, too, but imports
# Pallas
from jax._src.api import clear_backends as clear_backends

# whether a cluster has started this process, and what it says of the others: `jax.distributed.initialize` asks them, but would
# start its service on a single host, too
from jax._src.clusters import GceTpuCluster as GceTpuCluster
from jax._src.clusters import GkeTpuCluster as GkeTpuCluster
from jax._src.clusters import OmpiCluster as OmpiCluster
from jax._src.clusters import SlurmCluster as SlurmCluster

# a program is written to the cache on disk
from jax._src.compilation_cache import put_executable_and_time as put_executable_and_time

# the programs inside of a program: loops, calls; `jax.extend` has it, too, but imports Pallas
from jax._src.core import jaxprs_in_params as jaxprs_in_params

# the client of the coordination service that `jax.distributed.initialize` starts; it has no public name
from jax._src.distributed import global_state as global_state

# the singular value decomposition that programs for TPUs get: the public one traces it when a program is lowered only
from jax._src.tpu.linalg import svd as svd

# JAX's platforms, and whether it has started them, without starting them
from jax._src.xla_bridge import backends as backends
from jax._src.xla_bridge import backends_are_initialized as backends_are_initialized

# arrays gathered from the devices of all processes
from jax.experimental import multihost_utils as multihost_utils

# TPU slices that are not here, which programs can be compiled for
from jax.experimental import topologies as topologies

# whether an executable came from the cache on disk
from jax.experimental.compilation_cache import compilation_cache as compilation_cache

# the order of an array's dimensions in memory; programs keep the order of the arrays that they are given
from jax.experimental.layout import Format as Format
from jax.experimental.layout import Layout as Layout

# the type of what `jax.devices()` lists
from jaxlib._jax import Device as Device
