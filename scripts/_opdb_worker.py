"""The process that runs operators for op_coverage.py: reads names, answers each with a line of JSON."""

from __future__ import annotations

import dataclasses
import json
import os
import sys

import jax
import torch
from _opdb_check import check_operator, operators


def main() -> None:
    """Serve until the input ends."""
    count = int(sys.argv[1])
    jax.config.update("jax_platforms", "cpu")  # libtpu without chips may end the process
    torch.set_num_threads(1)
    # what PyTorch and XLA print must not mix with the answers
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    table = operators()
    for line in sys.stdin:
        result = check_operator(table[line.rstrip("\n")], count)
        answers.write(json.dumps(dataclasses.asdict(result)) + "\n")
        answers.flush()
        jax.clear_caches()


if __name__ == "__main__":
    main()
