"""The startup script of a TPU slice's hosts: systolic installed, and data fetched, before anybody comes to train."""

from __future__ import annotations

import shlex

PREFIX = "/opt/systolic"
"""The directory of a host that the script fills: `venv`, `data`, and `ready` when it has ended well."""

_SCRIPT = """\
#!/bin/bash
# Written by `systolic launch --startup-script`. Every host of a TPU slice runs it as root, each time it boots.
set -euo pipefail
prefix={prefix}
mkdir -p "$prefix"
rm -f "$prefix/ready"

# the system's Python is too old on some runtime versions; all of it below $prefix, where every user may read it
export HOME="${{HOME:-/root}}" UV_PYTHON_INSTALL_DIR="$prefix/python" UV_CACHE_DIR="$prefix/cache" PATH="$prefix/uv:$PATH"
command -v uv >/dev/null || curl -LsSf https://astral.sh/uv/install.sh | env UV_UNMANAGED_INSTALL="$prefix/uv" sh
[ -x "$prefix/venv/bin/python" ] || uv venv --seed --python 3.12 "$prefix/venv"
uv pip install --python "$prefix/venv/bin/python" --torch-backend cpu {requirements}
{fetch}
chmod -R a+rwX "$prefix"
touch "$prefix/ready"
"""


def startup_script(requirements: list[str], data: str | None = None, prefix: str = PREFIX) -> str:
    """The script for `--metadata-from-file=startup-script=FILE` of `gcloud compute tpus`.

    Args:
        requirements: what pip is to install, systolic among it.
        data: a `gs://` address that is copied to `data` below the prefix; None for no data.
        prefix: the directory that it fills.

    Returns:
        A script for bash.

    Example:
        >>> from systolic.distributed import startup_script
        >>> print(startup_script(["systolic[tpu]"], "gs://bucket/images").splitlines()[0])
        #!/bin/bash
    """
    fetch = (
        "# no data to fetch"
        if data is None
        else f'mkdir -p "$prefix/data"\ngcloud storage rsync --recursive {shlex.quote(data)} "$prefix/data"'
    )
    return _SCRIPT.format(prefix=shlex.quote(prefix), requirements=shlex.join(requirements), fetch=fetch)
