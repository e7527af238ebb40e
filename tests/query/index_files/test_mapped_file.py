from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

from strandline.query.index_files.mapped_file import map_file


def mappings_of(path: Path) -> int:
    return Path("/proc/self/maps").read_text().count(str(path))


def test_a_mapped_file_takes_no_descriptor_and_goes_with_its_last_reader(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"some bytes" * 1000)
    before = len(os.listdir("/proc/self/fd"))
    with path.open("rb") as file:
        buffer = map_file(file.fileno(), 10_000)
    assert len(os.listdir("/proc/self/fd")) == before
    piece = buffer.slice(5, 5)
    del buffer
    gc.collect()
    assert mappings_of(path) == 1
    assert piece.to_pybytes() == b"bytes"
    path.unlink()
    assert piece.to_pybytes() == b"bytes"
    del piece
    gc.collect()
    assert mappings_of(path) == 0


def test_what_cannot_be_mapped_is_an_error_of_the_system(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file, pytest.raises(PermissionError):
        map_file(file.fileno(), 10)
