"""Check the index files of a data directory, as a part of ``strandline verify``."""

from __future__ import annotations

import xxhash

from strandline.engine.disk import PIECE_BYTES, Disk
from strandline.engine.file_names import is_name
from strandline.engine.verify.directory_check import Report
from strandline.query.index_files.directory import FOLDER, checksum_in
from strandline.query.index_files.file import DamagedIndexFile, open_index_file


def check_index_files(disk: Disk, report: Report, *, fix: bool) -> None:
    """Verify the checksum of every index file, and add the result to a report. With ``fix``, remove damaged files:
    the server builds them again from the records."""
    for folder in disk.list(FOLDER):
        for name in disk.list(f"{FOLDER}/{folder}"):
            path = f"{FOLDER}/{folder}/{name}"
            if not folder.isdecimal() or not is_name("index", name):
                report.notes.append(f"{path} is not an index file; the next start removes it if it is a leftover")
                continue
            report.index_files += 1
            try:
                report.file_bytes += _check(disk, path, int(folder))
            except DamagedIndexFile as error:
                if fix:
                    disk.remove(path)
                    report.repairs.append(f"removed {path}, which the server builds again from the records: {error}")
                else:
                    report.problems.append(f"{error}. No record is lost: the server builds the file again.")


def _check(disk: Disk, path: str, epoch: int) -> int:
    """Read all of a file and return its size. Raises DamagedIndexFile."""
    index_file = open_index_file(disk.local_path(path), path)
    if index_file.info.epoch != epoch:
        raise DamagedIndexFile(path, f"it belongs to the log {index_file.info.epoch}; expected {epoch}")
    digest = xxhash.xxh3_64()
    for start in range(0, index_file.size, PIECE_BYTES):
        digest.update(disk.read(path, start, min(PIECE_BYTES, index_file.size - start)))
    if digest.hexdigest() != checksum_in(path):
        raise DamagedIndexFile(path, "its checksum does not match its name")
    return index_file.size
