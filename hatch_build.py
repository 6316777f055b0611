"""Links of the package's metadata: the repository that the package is built from says its own address."""

from __future__ import annotations

import os

from hatchling.metadata.plugin.interface import MetadataHookInterface


class AddressHook(MetadataHookInterface):
    """Reads `REPOSITORY_URL`, or what GitHub's runners set; a build without either has no links."""

    def update(self, metadata: dict[str, object]) -> None:
        """Add the URLs.

        Args:
            metadata: of the project; changed in place.
        """
        runner = "/".join(filter(None, (os.environ.get("GITHUB_SERVER_URL"), os.environ.get("GITHUB_REPOSITORY"))))
        address = os.environ.get("REPOSITORY_URL") or runner
        branch = f"{address}/blob/main"
        pages = {
            "Source": address,
            "Documentation": f"{branch}/docs/index.md",
            "Changelog": f"{branch}/CHANGELOG.md",
            "Issues": f"{address}/issues",
        }
        metadata["urls"] = pages if address else {}
