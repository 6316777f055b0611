"""PyTorch's archive of a checkpoint, written to a local file with checksums by ISA-L.

PyTorch computes the CRC-32 of every record by tables, which takes most of the time of a save that does not wait for its disk
(20 of 30 ms for 50 MB); the processor's carry-less product is five times as fast. The file is the same, byte for byte.
"""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
from contextlib import suppress
from typing import IO, Any

import torch
from isal.isal_zlib import crc32

from ..utilities._torch_internals import ArchiveWriter, storage_alignment, write_archive

# APPNOTE.TXT of the ZIP format, 4.3.7, 4.3.9, 4.3.12 and 4.4.4: where checksums, and the lengths of what is between them, stand
_LOCAL_HEADER, _LOCAL_LENGTHS = 30, 26
_CENTRAL_HEADER, _CENTRAL_CRC, _CENTRAL_LENGTHS = 46, 16, 28
_HAS_DESCRIPTOR, _DESCRIPTOR_CRC = 8, 4

_ID_NAME, _ID_DIGITS = ".data/serialization_id", 20
"""PyTorch's id of an archive: 20 digits of the records' names, and as many of their checksums."""

_LARGE = 4096
"""Bytes from which on the checksum is computed as they are written; what is smaller is read again."""
_CHUNK = 2**20


def write(checkpoint: dict[str, Any], file: IO[bytes]) -> None:
    """Write what `torch.save` writes, to an empty file that can be read, too.

    Raises:
        OSError: what the operating system said of a write.
    """
    watched = _Watched(file)
    with_checksums = torch.serialization.get_crc32_options()
    write_all(checkpoint, watched, checksums=False)
    file.flush()
    if with_checksums:
        _fill_in(file, watched.checksums)
        file.flush()


def write_all(checkpoint: dict[str, Any], file: IO[bytes] | io.RawIOBase, *, checksums: bool) -> None:
    """Write an archive as `torch.save` does, but tell the first error, where PyTorch tells of positions in the file.

    A signal's handler may raise wherever the main thread is, in the middle of a record, too: Ctrl-C, and PyTorch's of a worker
    of a loader that died.
    """
    writer = ArchiveWriter(file, checksums, storage_alignment())
    try:
        write_archive(checkpoint, writer, pickle, torch.serialization.DEFAULT_PROTOCOL, False)
    except BaseException:
        with suppress(RuntimeError):  # of the record that was cut off
            writer.write_end_of_file()  # or its destructor would, where an error of the disk aborts the process
        raise
    writer.write_end_of_file()


class _Watched(io.RawIOBase):
    """A file that computes the checksums of what is written.

    Args:
        file: the open file.

    Attributes:
        checksums: CRC-32 of each large write, by where it began and how many bytes it had.
    """

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__()
        self._file = file
        self._position = 0
        self.checksums: dict[tuple[int, int], int] = {}

    def writable(self) -> bool:
        """As any file that is written to."""
        return True

    def write(self, data: Any) -> int:
        """Write, and compute the checksum of what is large."""
        size = len(data)
        if size >= _LARGE:
            self.checksums[self._position, size] = crc32(data)
        self._file.write(data)
        self._position += size
        return size


def _fill_in(file: IO[bytes], known: dict[tuple[int, int], int]) -> None:
    """Put checksums where an archive without them has zeros: behind each record, and in the directory at its end."""
    with zipfile.ZipFile(file) as archive:
        records = archive.infolist()
        entry = archive.start_dir
    combined = 0
    for record in records:  # in the order of the directory; the id is the last one
        file.seek(record.header_offset + _LOCAL_LENGTHS)
        begin = record.header_offset + _LOCAL_HEADER + sum(struct.unpack("<2H", file.read(4)))
        end = begin + record.file_size
        if record.filename.endswith(_ID_NAME):
            _put(file, end - _ID_DIGITS, str(combined).zfill(_ID_DIGITS).encode())
        checksum = known.get((begin, record.file_size))
        if checksum is None:
            checksum = _checksum(file, begin, record.file_size)
        if record.flag_bits & _HAS_DESCRIPTOR:  # a record without contents has none, and no part in the id
            combined = _combine(combined, checksum)
            _put(file, end + _DESCRIPTOR_CRC, struct.pack("<I", checksum))
        _put(file, entry + _CENTRAL_CRC, struct.pack("<I", checksum))
        file.seek(entry + _CENTRAL_LENGTHS)
        entry += _CENTRAL_HEADER + sum(struct.unpack("<3H", file.read(6)))


def _combine(seed: int, value: int) -> int:
    """`c10::hash_combine`, by which PyTorch makes one number of its records' checksums; Boost's formula in 64 bits."""
    bits = 2**64 - 1
    return seed ^ ((value + 0x9E3779B9 + (seed << 6) + (seed >> 2)) & bits)


def _checksum(file: IO[bytes], begin: int, size: int) -> int:
    file.seek(begin)
    checksum = 0
    while size:
        chunk = file.read(min(size, _CHUNK))
        checksum, size = crc32(chunk, checksum), size - len(chunk)
    return checksum


def _put(file: IO[bytes], place: int, contents: bytes) -> None:
    file.seek(place)
    file.write(contents)
