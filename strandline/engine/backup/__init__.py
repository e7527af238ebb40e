"""Backups of a data directory, and restoring one, also as it was at a moment."""

from strandline.engine.backup.creation import BackupReport, backup
from strandline.engine.backup.pool import Backup, Interval, NoBackup, NotRestorable
from strandline.engine.backup.restoration import BackupList, DirectoryNotEmpty, RestoreReport, list_backups, restore
from strandline.engine.backup.verification import DamagedCopy, VerifyReport, verify_backups
from strandline.engine.errors import NoDataDirectory

__all__ = [
    "Backup",
    "BackupList",
    "BackupReport",
    "DamagedCopy",
    "DirectoryNotEmpty",
    "Interval",
    "NoBackup",
    "NoDataDirectory",
    "NotRestorable",
    "RestoreReport",
    "VerifyReport",
    "backup",
    "list_backups",
    "restore",
    "verify_backups",
]
