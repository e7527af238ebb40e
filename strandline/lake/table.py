"""A Delta table of the lake: its contents, its progress in every log, and the only way to change it.

A commit adds files, removes files and moves progress, all in one step. Progress is stored as Delta's own transaction
ids, so the table itself says what it contains, and no other state can disagree with it.

Every change is planned from a :class:`TableSnapshot` and committed through it. The commit creates exactly the next
version of the table, so it succeeds only if the table has not changed since the plan was made. If another driver or
another engine has committed in between, the commit changes nothing and raises :class:`TableMoved`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn

from strandline.arrow import pa
from strandline.lake.files import BOUNDED, DataFile
from strandline.lake.location import FileState, Lake
from strandline.lake.transaction_log import NO_TABLE, BrokenLog, TransactionLog
from strandline.late_import import LateModule

if TYPE_CHECKING:
    import deltalake.exceptions
    import deltalake.transaction

    from strandline.lake.fence import Fence
else:
    deltalake = LateModule("deltalake")

#: A checkpoint of the transaction log is written after this many commits.
CHECKPOINT_INTERVAL = 50
#: Rounds may be seconds apart, each with its commits, and opening the table reads all of them.
LOG_RETENTION = "interval 2 days"
#: The transaction id that a driver writes to a table when it takes over the lake (``lake/fence``). It is not progress.
DRIVER = "driver"
#: The number of attempts for a commit that can be repeated unchanged, because it does not depend on the table's
#: contents.
APPEND_ATTEMPTS = 20


class TableMoved(Exception):
    """Another writer changed the table after the snapshot, so the commit was not made. Plan again."""


class KnownFile(NamedTuple):
    """A file of a table in the transaction log; ``bounds`` is None if the log has none."""

    path: str
    size: int
    rows: int
    bounds: dict[str, tuple[Any, Any] | None]
    partition: dict[str, str | None]

    @classmethod
    def of(cls, file: DataFile) -> KnownFile:
        """Return the entry of a file that is not committed yet."""
        return cls(file.path, file.size, file.rows, dict(file.bounds), file.partition)


class LakeTable:
    def __init__(self, lake: Lake, name: str, schema: Any, partition_by: Sequence[str] = ()) -> None:
        self.lake = lake
        self.name = name
        self.schema = schema
        self.partition_by = list(partition_by)

    def __repr__(self) -> str:
        return f"Table({self.lake.place_of(self.name)!r})"

    @property
    def exists(self) -> bool:
        return deltalake.DeltaTable.is_deltatable(self.lake.place_of(self.name), self.lake.storage_options)

    def open(self, version: int | None = None) -> deltalake.DeltaTable:
        """Open the table. Raises deltalake's TableNotFoundError if nothing was ever committed to it."""
        return deltalake.DeltaTable(
            self.lake.place_of(self.name), version=version, storage_options=self.lake.storage_options
        )

    def snapshot(self, fence: Fence | None = None) -> TableSnapshot:
        """Return the current state of the table, to plan a change from. A driver passes its ``fence``, so that a
        conflict with another driver is distinguished from a change by another engine."""
        return TableSnapshot(self, fence)

    def files(self) -> list[KnownFile]:
        """Return the current files of the table; none if there is no table."""
        return self.snapshot().files()

    def progress(self) -> dict[str, int]:
        """Return the current progress of the table; empty if there is no table. Raises BrokenLog."""
        return self.snapshot().progress()

    def paths_at(self, version: int) -> set[str]:
        """Return the files of an earlier version of the table; none if that version is no longer known."""
        try:
            earlier = self.open(version)
        except deltalake.exceptions.DeltaError:
            return set()
        return set(pa.table(earlier.get_add_actions()).column("path").to_pylist())

    def append(self, files: Sequence[DataFile]) -> None:
        """Add files that do not depend on the table's contents: other commits in between do not matter. Files that
        another commit depends on are committed with :meth:`TableSnapshot.commit`."""
        for attempt in range(1, APPEND_ATTEMPTS + 1):
            try:
                self.snapshot().commit(add=files)
                return
            except TableMoved:
                if attempt == APPEND_ATTEMPTS:
                    raise


class TableSnapshot:
    """A table at one version. A commit through it moves it to the version that the commit created."""

    def __init__(self, table: LakeTable, fence: Fence | None = None) -> None:
        self.table = table
        self._fence = fence
        self._log: TransactionLog | None = TransactionLog(table.lake, table.name)
        #: NO_TABLE if nothing was ever committed.
        self.version = self._log.latest
        self._opened: deltalake.DeltaTable | None = None
        self._files: list[KnownFile] | None = None
        self._progress: dict[str, int] | None = None

    @property
    def exists(self) -> bool:
        return self.version != NO_TABLE

    # --- reading -----------------------------------------------------------------------------------------------------

    def files(self) -> list[KnownFile]:
        """Return the files of the table; none if there is no table."""
        if self._files is None:
            self._files = _known_files(self._delta()) if self.exists else []
        return self._files

    def columns(self) -> pa.Schema:
        """Return the columns of the table, which must exist."""
        return pa.schema(self._delta().schema().to_arrow())

    def progress(self) -> dict[str, int]:
        """Return the progress of the table: its transaction ids. Empty if there is no table. Raises BrokenLog.

        Reads the log itself, in one pass: the library takes half a millisecond per transaction id, and a server can
        have a hundred thousand logs. A process that has read the progress before reads only newer commits.
        """
        if self._progress is None:
            try:
                found = _transactions(self._log or self._list(), self.version)
            except BrokenLog:
                # Old commits may have been removed since the log was listed; they are in a newer checkpoint.
                found = _transactions(self._list(), self.version)
            found.pop(DRIVER, None)
            files = {} if found or not self.exists else (self._log or self._list()).files(self.version)
            if files:
                raise BrokenLog(
                    f"{self.table.lake.place_of(self.table.name)} has {len(files)} files but no "
                    "progress: its transaction log has no transaction ids. Nothing is added to it, because "
                    "that could add every record again. Move the table away to rebuild it from the logs."
                )
            self._progress = found
        return dict(self._progress)

    def replaced(self) -> dict[str, int]:
        """Return the files that were once part of the table, and when they were removed from it, in milliseconds. They
        may still exist for readers of an earlier version."""
        actions = (self._log or self._list()).actions("remove", self.version)
        found = {action["path"]: action["deletionTimestamp"] or 0 for action in actions}
        for file in self.files():
            found.pop(file.path, None)
        return found

    # --- changing ----------------------------------------------------------------------------------------------------

    def commit(
        self,
        *,
        add: Sequence[DataFile] = (),
        remove: Sequence[KnownFile] = (),
        progress: Mapping[str, int] | None = None,
        is_rearranged: bool = False,
        now: int | None = None,
    ) -> int:
        """Create the next version of the table and return its number. Raises TableMoved if that version already exists,
        and LakeInUse if another driver has taken over the lake.

        ``is_rearranged``: the rows are unchanged but in other files, so readers that follow changes can skip this
        version. ``now`` is the time of removal for removed files, in milliseconds; the default is the system time.

        Do not remove the added files when this fails. An object store can report a failure although it has stored the
        commit. Files that no commit refers to are removed later.
        """
        if not (add or remove or progress):
            return self.version
        table = self._delta() if self.exists else self._create()
        changes = not is_rearranged
        actions: list[deltalake.transaction.AddAction | deltalake.transaction.RemoveAction] = [
            *_additions(add, changes)
        ]
        time_ms = int(time.time() * 1000) if now is None else now
        actions += [
            deltalake.transaction.RemoveAction(file.path, changes, time_ms, file.size, file.partition)
            for file in remove
        ]
        self._write(table, actions, "append", table.schema(), progress or {})
        return self.version

    def replace(self, add: Sequence[DataFile], progress: Mapping[str, int]) -> int:
        """Create the next version with these files alone, and the columns of the table's ``schema``. Raises as
        ``commit`` does."""
        table = self._delta() if self.exists else self._create()
        self._write(table, _additions(add, True), "overwrite", deltalake.Schema.from_arrow(self.table.schema), progress)
        return self.version

    def add_columns(self, names: Sequence[str], progress: Mapping[str, int]) -> int:
        """Create the next version with more columns of the table's ``schema``, which are null in every row so far.
        Raises as ``commit`` does."""
        table = self._delta()
        fields = [field for field in deltalake.Schema.from_arrow(self.table.schema).fields if field.name in names]
        try:
            table.alter.add_columns(fields, **_properties(progress))
        except deltalake.exceptions.DeltaError as error:
            self._raise_conflict(error)
        self._made(self.version + 1, progress)
        return self.version

    def _write(
        self,
        table: deltalake.DeltaTable,
        actions: Sequence[deltalake.transaction.AddAction | deltalake.transaction.RemoveAction],
        mode: Literal["append", "overwrite"],
        schema: deltalake.Schema,
        progress: Mapping[str, int],
    ) -> None:
        partition_by = self.table.partition_by or None
        try:
            table.create_write_transaction(
                list(actions), mode, schema, partition_by=partition_by, **_properties(progress)
            )
        except deltalake.exceptions.CommitFailedError as error:
            self._raise_conflict(error)
        self._made(self.version + 1, progress)

    def _create(self) -> deltalake.DeltaTable:
        """Create the table without rows, as version 0."""
        schema, partition_by = self.table.schema, self.table.partition_by
        bounded = [name for name in BOUNDED if name in schema.names and name not in partition_by]
        try:
            self._opened = deltalake.DeltaTable.create(
                self.table.lake.place_of(self.table.name),
                schema,
                partition_by=partition_by or None,
                name=self.table.name.rpartition("/")[2],
                configuration={
                    "delta.dataSkippingStatsColumns": ",".join(bounded),
                    "delta.checkpointInterval": str(CHECKPOINT_INTERVAL),
                    "delta.logRetentionDuration": LOG_RETENTION,
                },
                storage_options=self.table.lake.storage_options,
                commit_properties=deltalake.CommitProperties(max_commit_retries=0),
            )
        except deltalake.exceptions.DeltaError as error:
            self._raise_conflict(error)
        self._made(0, {})
        if self._fence is not None:
            # A driver that takes over the lake moves every table it finds. It may have listed the tables before this
            # one existed, but then its number is already higher.
            self._fence.check()
        return self._delta()

    def _made(self, version: int, progress: Mapping[str, int]) -> None:
        self.version = version
        self._log = self._files = None
        if self._progress is not None:
            self._progress |= {app: number for app, number in progress.items() if app != DRIVER}

    def _list(self) -> TransactionLog:
        return TransactionLog(self.table.lake, self.table.name)

    def _delta(self) -> deltalake.DeltaTable:
        """Return the table at this version."""
        if self._opened is None:
            self._opened = self.table.open(self.version)
        elif self._opened.version() != self.version:
            self._opened.load_as_version(self.version)
        return self._opened

    def _raise_conflict(self, error: Exception) -> NoReturn:
        latest = self._list().latest
        if latest == self.version:
            raise error
        if self._fence is not None:
            self._fence.check()
        raise TableMoved(
            f"{self.table.lake.place_of(self.table.name)} was changed by another writer: a commit on top of version "
            f"{self.version} was prepared, but the table is at version {latest}"
        ) from error


def _additions(
    files: Sequence[DataFile], changes: bool
) -> list[deltalake.transaction.AddAction | deltalake.transaction.RemoveAction]:
    return [
        deltalake.transaction.AddAction(file.path, file.size, file.partition, file.written_ms, changes, file.statistics)
        for file in files
    ]


def _properties(progress: Mapping[str, int]) -> dict[str, Any]:
    transactions = [deltalake.Transaction(app, version) for app, version in progress.items()]
    return {
        # Without this, the library checks commits made in between by its own rules, finds that appends do not conflict,
        # and commits on top.
        "commit_properties": deltalake.CommitProperties(app_transactions=transactions, max_commit_retries=0),
        "post_commithook_properties": deltalake.PostCommitHookProperties(cleanup_expired_logs=True),
    }


class _KnownTransactions(NamedTuple):
    """The transaction ids at a version. ``commit`` is the state of its commit file, which shows whether the table is
    still the same one: a table that was moved away and created again has other commits."""

    version: int
    commit: FileState
    ids: dict[str, int]


#: What this process has read last, by the place of the table. Rounds are frequent, and change few of the logs.
_known: dict[str, _KnownTransactions] = {}
MAX_KNOWN = 64


def _transactions(log: TransactionLog, version: int) -> dict[str, int]:
    known = _known.pop(log.place, None)
    if known is not None and (known.version > version or log.commit_state(known.version) != known.commit):
        known = None
    # A commit that is read again because its log was shortened meanwhile has the same ids.
    found = {} if known is None else dict(known.ids)
    for txn in log.actions("txn", version, NO_TABLE if known is None else known.version):
        found[txn["appId"]] = txn["version"]
    commit = log.commit_state(version)
    if commit is not None:
        while len(_known) >= MAX_KNOWN:
            del _known[next(iter(_known))]
        _known[log.place] = _KnownTransactions(version, commit, dict(found))
    return found


def _known_files(table: deltalake.DeltaTable) -> list[KnownFile]:
    actions = pa.table(table.get_add_actions(flatten=True))
    names = actions.column_names
    found = []
    for row in actions.to_pylist():
        bounds = {
            name[4:]: None if row[name] is None else (row[name], row[f"max.{name[4:]}"])
            for name in names
            if name.startswith("min.") and f"max.{name[4:]}" in row
        }
        partition = {
            name[10:]: None if row[name] is None else str(row[name]) for name in names if name.startswith("partition.")
        }
        found.append(KnownFile(row["path"], row["size_bytes"], row["num_records"] or 0, bounds, partition))
    return found
