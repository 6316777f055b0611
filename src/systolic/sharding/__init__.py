"""Placement of arrays: the mesh of devices with its named axes, and the rules that place the state on it."""

from ._mesh import DATA_AXIS as DATA_AXIS
from ._mesh import batch_spec as batch_spec
from ._mesh import make_mesh as make_mesh
from ._mesh import sharding_on as sharding_on
from ._rules import StateEntry as StateEntry
from ._rules import StateKind as StateKind
from ._rules import StateRule as StateRule
from ._rules import replicate_state as replicate_state
from ._rules import shard_by_name as shard_by_name
