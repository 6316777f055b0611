"""Placement of arrays: the mesh of devices with its named axes, and the rules that place the state on it."""

from ._fully_sharded import FullySharded as FullySharded
from ._fully_sharded import without_fsdp as without_fsdp
from ._mesh import DATA_AXIS as DATA_AXIS
from ._mesh import FSDP_AXIS as FSDP_AXIS
from ._mesh import TENSOR_AXIS as TENSOR_AXIS
from ._mesh import MeshShape as MeshShape
from ._mesh import batch_parts as batch_parts
from ._mesh import batch_spec as batch_spec
from ._mesh import make_mesh as make_mesh
from ._mesh import named_sharding as named_sharding
from ._mesh import sharding_on as sharding_on
from ._mesh import split_batch as split_batch
from ._plan import STYLES as STYLES
from ._plan import Plan as Plan
from ._plan import shard_by_plan as shard_by_plan
from ._plan import splits_evenly as splits_evenly
from ._rules import DATA_PARALLEL as DATA_PARALLEL
from ._rules import StateEntry as StateEntry
from ._rules import StateKind as StateKind
from ._rules import StateLayout as StateLayout
from ._rules import StateRule as StateRule
from ._rules import replicate_state as replicate_state
from ._rules import shard_by_name as shard_by_name
