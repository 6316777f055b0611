"""The parts of `systolic doctor`, each of which can be called alone."""

from ._finding import Finding as Finding
from ._finding import Level as Level
from ._report import Report as Report
from ._report import as_text as as_text
from ._report import examine as examine
from ._versions import Version as Version
from ._versions import check_versions as check_versions
