"""A process that waits a few seconds for the others."""

from __future__ import annotations

import sys

from systolic.distributed import join_processes

join_processes(arrival_seconds=int(sys.argv[1]))
