"""Memory-mapped files that take no file descriptor.

A ``mmap`` object of Python keeps a duplicate of its descriptor. A server may map thousands of index files, and its
descriptors are for connections.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from typing import Any

from strandline.arrow import pa

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_longlong]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_FAILED = ctypes.c_void_p(-1).value


class _Mapping:
    """Ends the mapping when nothing refers to it any more."""

    def __init__(self, fd: int, size: int) -> None:
        address = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
        if address == _FAILED:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        self.address: int = address
        weakref.finalize(self, _libc.munmap, address, size).atexit = False


def map_file(fd: int, size: int) -> Any:
    """Return the first ``size`` bytes of an open file as an Arrow buffer. The file may be closed afterwards. Raises
    OSError."""
    mapping = _Mapping(fd, size)
    return pa.foreign_buffer(mapping.address, size, mapping)
