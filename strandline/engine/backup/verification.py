"""Verifying backups: every file that a backup needs is read and compared with the checksum in its description."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from strandline.engine.backup.pool import FILES, FileCopy, Folder, NoBackup, Pool, locate
from strandline.engine.backup.restoration import Progress
from strandline.engine.errors import DamagedFile


class DamagedCopy(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a pool that is not what was put there, and the backups that need it."""

    file: str
    why: str
    backups: list[str]


class VerifyReport(msgspec.Struct, frozen=True, kw_only=True):
    backups: int
    #: Distinct files, and their bytes.
    files: int
    bytes: int
    damaged: list[DamagedCopy]

    @property
    def sound(self) -> bool:
        return not self.damaged


def verify_backups(
    target: str, *, options: Mapping[str, str | bool] | None = None, progress: Progress | None = None
) -> VerifyReport:
    """Read every file of every backup in a pool. Changes nothing; raises NoBackup and OSError."""
    pool = Pool(target, options)
    backups = pool.backups()
    if not backups and not pool.damaged:
        raise NoBackup(target)
    sizes = pool.sizes("journal")
    users: dict[tuple[Folder, FileCopy], list[str]] = {}
    for backup in backups:
        lists: tuple[Sequence[FileCopy], ...] = (
            backup.segments,
            backup.checkpoints,
            [locate(copy, sizes) for copy in backup.own_journal],
        )
        for folder, copies in zip(FILES, lists, strict=True):
            for copy in copies:
                bare = FileCopy(copy.name, copy.size, copy.checksum)
                users.setdefault((folder, bare), []).append(backup.name)
    total = sum(copy.size for _, copy in users)
    done = 0
    damaged = [DamagedCopy(file=error.path, why=error.why, backups=[]) for error in pool.damaged]
    for (folder, copy), names in users.items():
        try:
            for piece in pool.read(folder, copy):
                done += len(piece)
                if progress is not None:
                    progress(f"{folder}/{copy.name}", done, total)
        except DamagedFile as error:
            damaged.append(DamagedCopy(file=f"{folder}/{copy.name}", why=error.why, backups=names))
    return VerifyReport(backups=len(backups), files=len(users), bytes=total, damaged=damaged)
