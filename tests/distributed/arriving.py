"""A process that waits three seconds for the others."""

from __future__ import annotations

from systolic.distributed import join_processes

join_processes(arrival_seconds=3)
