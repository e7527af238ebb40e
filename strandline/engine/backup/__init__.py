"""Back up a data directory, and restore it from a backup or to a point in time."""

from strandline.engine.backup.creation import BackupReport, backup
from strandline.engine.backup.pool import Backup, Interval, NoBackup, NotRestorable
from strandline.engine.backup.restoration import (
    BackupList,
    DamagedCopy,
    DirectoryNotEmpty,
    RestoreReport,
    VerifyReport,
    list_backups,
    restore,
    verify_backups,
)
from strandline.engine.backup.survey import BackupSurvey, SurveyedBackup, survey
from strandline.engine.errors import NoDataDirectory

__all__ = [
    "Backup",
    "BackupList",
    "BackupReport",
    "BackupSurvey",
    "DamagedCopy",
    "DirectoryNotEmpty",
    "Interval",
    "NoBackup",
    "NoDataDirectory",
    "NotRestorable",
    "RestoreReport",
    "SurveyedBackup",
    "VerifyReport",
    "backup",
    "list_backups",
    "restore",
    "survey",
    "verify_backups",
]
