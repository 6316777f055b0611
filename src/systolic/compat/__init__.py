"""Compatibility with scripts written for older Lightning, or for torch_xla: translated, refused or explained."""

from ._arguments import accepts_legacy_spellings as accepts_legacy_spellings
from ._arguments import modern as modern
from ._environment import ADDRESSES as ADDRESSES
from ._environment import NUMERICS as NUMERICS
from ._environment import OBSOLETE as OBSOLETE
from ._environment import obsolete_settings as obsolete_settings
from ._guests import is_lightnings_own as is_lightnings_own
from ._guests import lightnings as lightnings
from ._guests import welcome as welcome
from ._hooks import REMOVED_HOOKS as REMOVED_HOOKS
from ._hooks import REMOVED_PARAMETERS as REMOVED_PARAMETERS
from ._hooks import require_current_hooks as require_current_hooks
from ._torch_xla import explain_torch_xla as explain_torch_xla
