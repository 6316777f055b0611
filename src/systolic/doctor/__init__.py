"""The parts of `systolic doctor`, each of which can be called alone."""

from ._chips import check_chips as check_chips
from ._devices import DeviceFacts as DeviceFacts
from ._devices import check_devices as check_devices
from ._environment import check_environment as check_environment
from ._environment import check_huge_pages as check_huge_pages
from ._environment import initial_environment as initial_environment
from ._finding import Finding as Finding
from ._finding import Level as Level
from ._free import Outcome as Outcome
from ._free import free_chips as free_chips
from ._report import Report as Report
from ._report import as_text as as_text
from ._report import examine as examine
from ._versions import Version as Version
from ._versions import check_versions as check_versions
