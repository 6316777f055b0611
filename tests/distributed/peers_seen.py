"""Peers that a process finds, as a TPU host or as what it is; printed as JSON."""

from __future__ import annotations

import dataclasses
import json
import os
import sys

from systolic.distributed._peers import find_peers

peers = find_peers(os.environ, sys.argv[1] == "tpu", 5)
print(json.dumps(None if peers is None else dataclasses.asdict(peers)))  # noqa: T201
