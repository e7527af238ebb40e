"""A Delta table of the lake: what it holds, how far it has come with every log, and the one way to change it.

A commit adds files, removes files and moves progress, all in one step. Progress is kept as Delta's own transaction ids,
so the table itself says what it contains: nothing else has to be remembered, and nothing can disagree with it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction

from strandline.lake.files import BOUNDED, DataFile
from strandline.lake.place import Lake

#: The transaction log is summed up every so many commits.
CHECKPOINT_INTERVAL = 50
#: Rounds may be seconds apart, each with its commits, and whoever opens the table looks through all of them.
LOG_RETENTION = "interval 2 days"
LOG = "_delta_log"


class KnownFile(NamedTuple):
    """A file of a table as the transaction log has it; ``bounds`` are None where it tells none."""

    path: str
    size: int
    rows: int
    bounds: dict[str, tuple[Any, Any] | None]
    partition: dict[str, str | None]


class Table:
    def __init__(self, lake: Lake, name: str, schema: Any, partition_by: Sequence[str] = ()) -> None:
        self.lake = lake
        self.name = name
        self.schema = schema
        self.partition_by = list(partition_by)

    def __repr__(self) -> str:
        return f"Table({self.lake.place_of(self.name)!r})"

    @property
    def exists(self) -> bool:
        return DeltaTable.is_deltatable(self.lake.place_of(self.name), self.lake.storage_options)

    def open(self) -> DeltaTable:
        """Raises deltalake's TableNotFoundError if nothing was ever committed to it."""
        return DeltaTable(self.lake.place_of(self.name), storage_options=self.lake.storage_options)

    def _open_or_create(self) -> DeltaTable:
        if self.exists:
            return self.open()
        bounded = [name for name in BOUNDED if name in self.schema.names and name not in self.partition_by]
        return DeltaTable.create(
            self.lake.place_of(self.name),
            self.schema,
            partition_by=self.partition_by or None,
            name=self.name,
            configuration={
                "delta.dataSkippingStatsColumns": ",".join(bounded),
                "delta.checkpointInterval": str(CHECKPOINT_INTERVAL),
                "delta.logRetentionDuration": LOG_RETENTION,
            },
            storage_options=self.lake.storage_options,
        )

    # --- looking -----------------------------------------------------------------------------------------------------

    def files(self) -> list[KnownFile]:
        """The files that hold the table now; none if there is no table."""
        if not self.exists:
            return []
        actions = pa.table(self.open().get_add_actions(flatten=True))
        names = actions.column_names
        found = []
        for row in actions.to_pylist():
            bounds = {
                name[4:]: None if row[name] is None else (row[name], row[f"max.{name[4:]}"])
                for name in names
                if name.startswith("min.") and f"max.{name[4:]}" in row
            }
            partition = {
                name[10:]: None if row[name] is None else str(row[name])
                for name in names
                if name.startswith("partition.")
            }
            found.append(KnownFile(row["path"], row["size_bytes"], row["num_records"] or 0, bounds, partition))
        return found

    def version(self) -> int | None:
        """The number of the last commit; None if there is no table."""
        return int(self.open().version()) if self.exists else None

    def paths_at(self, version: int) -> set[str]:
        """The files that held the table at an earlier version; none if that is not known any more."""
        place = self.lake.place_of(self.name)
        try:
            earlier = DeltaTable(place, version=version, storage_options=self.lake.storage_options)
        except DeltaError:
            return set()
        return set(pa.table(earlier.get_add_actions()).column("path").to_pylist())

    def progress(self) -> dict[str, int]:
        """All transaction ids of the table; none if there is no table."""
        return {txn["appId"]: txn["version"] for txn in self._actions("txn")}

    def replaced(self) -> dict[str, int]:
        """The files that were once part of the table, and when they were removed from it, in milliseconds. They may be
        there still, for those who read an earlier version."""
        found = {action["path"]: action["deletionTimestamp"] or 0 for action in self._actions("remove")}
        for file in self.files():
            found.pop(file.path, None)
        return found

    def _actions(self, kind: str) -> Iterator[dict[str, Any]]:
        """What the transaction log has of a kind, oldest first.

        Read from the log itself, in one go: asking the library for each transaction id costs half a millisecond, and a
        server has a hundred thousand logs.
        """
        start = -1
        stated = self.lake.read(f"{self.name}/{LOG}/_last_checkpoint")
        names = sorted(name.rpartition("/")[2] for name in self.lake.names(f"{self.name}/{LOG}/"))
        if stated is not None:
            start = msgspec.json.decode(stated)["version"]
            for name in names:
                if name.startswith(f"{start:020d}.checkpoint") and name.endswith(".parquet"):
                    yield from self._checkpointed(name, kind)
        begin = f'{{"{kind}"'.encode()
        for name in names:
            version, _, ending = name.partition(".")
            if ending == "json" and int(version) > start:
                for line in (self.lake.read(f"{self.name}/{LOG}/{name}") or b"").splitlines():
                    if line.startswith(begin):
                        yield msgspec.json.decode(line)[kind]

    def _checkpointed(self, checkpoint: str, kind: str) -> list[dict[str, Any]]:
        raw = self.lake.read(f"{self.name}/{LOG}/{checkpoint}")
        assert raw is not None, "the table has been changed by another meanwhile"
        rows = pq.read_table(pa.BufferReader(raw), columns=[kind]).column(kind).to_pylist()
        named = "appId" if kind == "txn" else "path"
        return [row for row in rows if row is not None and row[named] is not None]

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
        """One step; the version of the table after it. ``is_rearranged``: the rows are the same as before, in other
        files, which those who follow changes need not look at. ``now`` is the time in milliseconds, for files that are
        removed; that of the system if it is not given."""
        table = self._open_or_create()
        if not (add or remove or progress):
            return int(table.version())
        changes = not is_rearranged
        actions: list[AddAction | RemoveAction] = [
            AddAction(file.path, file.size, file.partition, file.written_ms, changes, file.statistics) for file in add
        ]
        time_ms = int(time.time() * 1000) if now is None else now
        actions += [RemoveAction(file.path, changes, time_ms, file.size, file.partition) for file in remove]
        transactions = [Transaction(app, version) for app, version in (progress or {}).items()]
        table.create_write_transaction(
            actions,
            "append",
            table.schema(),
            partition_by=self.partition_by or None,
            commit_properties=CommitProperties(app_transactions=transactions),
            post_commithook_properties=PostCommitHookProperties(cleanup_expired_logs=True),
        )
        table.update_incremental()
        return int(table.version())
