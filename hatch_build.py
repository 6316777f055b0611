"""Links of the package's metadata and its description: the repository that the package is built from says its own address."""

from __future__ import annotations

import os
import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface


class AddressHook(MetadataHookInterface):
    """Reads `REPOSITORY_URL`, or what GitHub's runners set; a build without either has no links to its repository."""

    def update(self, metadata: dict[str, object]) -> None:
        """Add the URLs, and the README with links that lead somewhere from a package index, too.

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
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        if address:
            text = re.sub(r"\]\((?!https?:)([^)#\s]+)", rf"]({branch}/\1", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
