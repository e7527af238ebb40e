"""What a backup pool has, for people: its newest backups, and whether all their files are there.

A survey reads descriptions and lists files; it reads no copied file. It is bounded in descriptions, bytes and time, so
that a server can make one while it works.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic

import msgspec

from strandline.engine.backup.pool import (
    FILES,
    Backup,
    FileCopy,
    Folder,
    Interval,
    Pool,
    histories,
    locate,
)

#: A survey reads at most this many descriptions and this many of their bytes, the newest first.
MAX_BACKUPS = 200
MAX_BYTES = 64 << 20
#: After this time, a survey reads no further description and lists no further page.
MAX_SECONDS = 10.0
#: The files of a pool are not compared with its backups if there are more.
MAX_FILES = 500_000


class SurveyedBackup(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    history: str
    time: int
    #: The backup contains every change up to this time.
    until: int
    files: int
    bytes: int
    segments: int
    #: The number of records in its segments, also of those that were deleted or are too old by now.
    sealed_records: int
    #: The bytes of the files that the backup before it did not have.
    new_bytes: int
    #: The files that the pool lacks, or has with another size; None: they were not listed.
    missing_files: int | None
    #: Every file was read and found good at this time or later; None: this is not known of every file.
    verified_at: int | None


class BackupSurvey(msgspec.Struct, frozen=True, kw_only=True):
    #: Newest first.
    backups: list[SurveyedBackup]
    #: The number of all backups in the pool.
    total: int
    #: The moments that can be restored with these backups.
    intervals: list[Interval]
    #: The files of the pool and their bytes, without descriptions; None: they were not listed.
    files: int | None
    bytes: int | None
    #: Why descriptions could not be read.
    damaged: list[str]


def survey(
    target: str,
    *,
    options: Mapping[str, str | bool] | None = None,
    seconds: float = MAX_SECONDS,
    clock: Callable[[], float] = monotonic,
) -> BackupSurvey:
    """Survey a pool. Raises NoBackup if there is no such directory, BadConfig, DamagedFile and OSError."""
    until = clock() + seconds
    pool = Pool(target, options)
    names, sizes = pool.descriptions(), None
    found: list[Backup] = []
    budget = MAX_BYTES
    for name, size in names[:MAX_BACKUPS]:
        budget -= size
        # Always the newest one, however large it is and however slow the store.
        if found and (budget < 0 or clock() > until):
            break
        backup = pool.description(name, size)
        if backup is not None:
            found.append(backup)
    if found:
        sizes = _sizes(pool, lambda: clock() > until)
    return BackupSurvey(
        backups=[_summary(backup, found[at + 1 :], sizes) for at, backup in enumerate(found)],
        total=len(names),
        intervals=[interval for history in histories(found[::-1]) for interval in history.intervals()],
        files=None if sizes is None else sum(map(len, sizes.values())),
        bytes=None if sizes is None else sum(sum(folder.values()) for folder in sizes.values()),
        damaged=[str(error) for error in pool.damaged],
    )


_Sizes = dict[Folder, dict[str, int]]


def _sizes(pool: Pool, is_over: Callable[[], bool]) -> _Sizes | None:
    """The files of the pool by folder; None if there are too many, or listing them takes too long."""
    sizes: _Sizes = {folder: {} for folder in FILES}
    for folder in FILES:
        for page in pool.pages(folder):
            sizes[folder].update(page)
            if is_over() or sum(map(len, sizes.values())) > MAX_FILES:
                return None
    return sizes


def _summary(backup: Backup, older: list[Backup], sizes: _Sizes | None) -> SurveyedBackup:
    before = next((one for one in older if one.history == backup.history), None)
    known = set() if before is None else {copy.name for copy in before.files}
    verified = [backup.verified.get(copy.name) for copy in backup.files]
    return SurveyedBackup(
        name=backup.name,
        history=backup.history,
        time=backup.time,
        until=backup.until,
        files=len(backup.files),
        bytes=backup.size,
        segments=len(backup.segments),
        sealed_records=sum(entry.rows for entry in backup.manifest.segments),
        new_bytes=sum(copy.size for copy in backup.files if copy.name not in known),
        missing_files=None if sizes is None else _missing(backup, sizes),
        verified_at=min((time for time in verified if time is not None), default=None) if all(verified) else None,
    )


def _missing(backup: Backup, sizes: _Sizes) -> int:
    journal = sizes["journal"]
    needed: list[tuple[Folder, FileCopy]] = [
        *(("segments", copy) for copy in backup.segments),
        *(("checkpoints", copy) for copy in backup.checkpoints),
    ]
    missing = sum(sizes[folder].get(copy.name) != copy.size for folder, copy in needed)
    # A longer copy of a journal file may have replaced a shorter one.
    return missing + sum(journal.get(locate(copy, journal).name, -1) < copy.size for copy in backup.own_journal)
