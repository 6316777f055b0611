"""A process that waits a few seconds for the others."""

from __future__ import annotations

import os
import sys

from systolic.distributed import join_processes

join_processes(os.environ | {"SYSTOLIC_ARRIVAL_SECONDS": sys.argv[1]})
