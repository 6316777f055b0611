"""An object store in a directory: keys without directories, uploads in parts, objects that appear when they are closed."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import fsspec
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem


class Upload(AbstractBufferedFile):
    """Reads parts of an object; writes parts to a temporary file, which the last one makes an object."""

    def _initiate_upload(self) -> None:
        self.parts = tempfile.NamedTemporaryFile(delete=False)  # noqa: SIM115

    def _upload_chunk(self, final: bool = False) -> bool:
        self.parts.write(self.buffer.getbuffer())
        if final:
            self.parts.close()
            shutil.move(self.parts.name, self.fs.object_at(self.path))
            self.fs.invalidate_cache()
        return True

    def _fetch_range(self, start: int, end: int) -> bytes:
        self.fs.bytes_read += end - start
        with open(self.fs.object_at(self.path), "rb") as file:
            file.seek(start)
            return file.read(end - start)


class ObjectStore(AbstractFileSystem):
    """Objects named `bucket/any/key`, each a file of a directory; without the right password nothing works.

    As with real ones, fsspec makes one for each thread, and each remembers the listings that it has seen.
    """

    protocol = "objects"

    def __init__(self, root: str, password: str = "", **options: Any) -> None:
        super().__init__(**options)
        if password != "sesame":
            raise ValueError("wrong password")
        self.root = Path(root)
        self.bytes_read = 0

    def object_at(self, path: str) -> Path:
        return self.root / self._strip_protocol(path).replace("/", "%")

    def _open(self, path: str, mode: str = "rb", block_size: Any = None, **options: Any) -> Upload:
        if mode == "rb" and not self.object_at(path).exists():
            raise FileNotFoundError(path)
        return Upload(self, path, mode, block_size or "default", **options)

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        known = self._ls_from_cache(path)  # raises when the listing of the directory has no such name
        if known is not None and len(known) == 1 and known[0]["name"] == path:
            return known[0]
        if self.object_at(path).exists():
            return {"name": path, "size": self.object_at(path).stat().st_size, "type": "file"}
        if any(key.startswith(path + "/") for key in self._keys()):
            return {"name": path, "size": 0, "type": "directory"}
        raise FileNotFoundError(path)

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        path = self._strip_protocol(path)
        if path not in self.dircache:
            keys = [key for key in self._keys() if key.startswith(path + "/")]
            if not keys:
                raise FileNotFoundError(path)
            names = sorted({path + "/" + key[len(path) + 1 :].split("/")[0] for key in keys})
            self.dircache[path] = [self.info(name) for name in names]
        return self.dircache[path] if detail else [entry["name"] for entry in self.dircache[path]]

    def invalidate_cache(self, path: str | None = None) -> None:
        self.dircache.clear()

    def cp_file(self, path1: str, path2: str, **options: Any) -> None:
        shutil.copyfile(self.object_at(path1), self.object_at(path2))
        self.invalidate_cache()

    def _rm(self, path: str) -> None:
        self.object_at(path).unlink()
        self.invalidate_cache()

    def _keys(self) -> list[str]:
        return [entry.name.replace("%", "/") for entry in self.root.iterdir()]


def register() -> None:
    """Let `objects://` be a kind of URL."""
    fsspec.register_implementation("objects", ObjectStore, clobber=True)
