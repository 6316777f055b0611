"""Start libtpu without its noise where there is no chip to start."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Final

from ._chips import chip_files

_WITHOUT_CHIPS: Final = {
    # else libtpu asks Google Cloud's metadata server which machine this is, and complains when nobody answers
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-8",
    "TPU_WORKER_HOSTNAMES": "localhost",
    # libtpu lets one process a machine use it, because chips belong to one; as a compiler any number may
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}


@contextlib.contextmanager
def quiet_libtpu() -> Iterator[None]:
    """Around what may load libtpu, which JAX does whenever it is installed: settings that it reads while it starts.

    On a machine with chips nothing is changed, and neither is what the user has set.
    """
    ours = {} if chip_files() else {name: value for name, value in _WITHOUT_CHIPS.items() if name not in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            os.environ.pop(name, None)
