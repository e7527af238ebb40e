"""The transaction log of a Delta table, read by the rules of Delta's protocol.

The state of a table at a version is the newest complete checkpoint at or before that version and every commit after it.
Checkpoints are found by listing ``_delta_log``. The file ``_last_checkpoint`` is only a hint: it can be missing, empty
or out of date, so it is not read. If a commit is missing, reading fails instead of returning part of the state.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from strandline.arrow import pa, pq
from strandline.lake.location import FileState, Lake

LOG = "_delta_log"
#: The version of a table that does not exist. Its first commit creates version 0.
NO_TABLE = -1
#: How many missing versions an error message names.
NAMED = 3

_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.(?:[0-9a-f-]{36}\.(?:json|parquet)|parquet)")
_PART = re.compile(r"(\d{20})\.checkpoint\.(\d{10})\.(\d{10})\.parquet")
#: Actions that a checkpoint may store in sidecar files.
_FILE_ACTIONS = ("add", "remove")
#: The field that every action of a kind has. Where it is null, the row of a checkpoint is of another kind.
_IDENTITY = {"txn": "appId", "remove": "path", "add": "path", "sidecar": "path"}


class BrokenLog(OSError):
    """The transaction log of a table is incomplete or unreadable. The message says what is missing."""


class TransactionLog:
    """The files of a table's log, as of the creation of this object."""

    def __init__(self, lake: Lake, table: str) -> None:
        self._lake = lake
        self._table = table
        self.place = lake.place_of(table)
        self._folder = f"{table}/{LOG}/"
        self._commits: set[int] = set()
        #: The files of each complete checkpoint, by version.
        self._checkpoints: dict[int, list[str]] = {}
        parts: dict[tuple[int, int], list[str]] = {}
        hinted = False
        for path in sorted(lake.names(self._folder)):
            name = path[len(self._folder) :]
            if found := _COMMIT.fullmatch(name):
                self._commits.add(int(found[1]))
            elif found := _CHECKPOINT.fullmatch(name):
                self._checkpoints[int(found[1])] = [name]
            elif found := _PART.fullmatch(name):
                parts.setdefault((int(found[1]), int(found[3])), []).append(name)
            hinted = hinted or name == "_last_checkpoint"
        for (version, count), names in parts.items():
            if len(names) == count:
                self._checkpoints.setdefault(version, names)
        self.latest = max((*self._commits, *self._checkpoints), default=NO_TABLE)
        if hinted and self.latest == NO_TABLE:
            raise BrokenLog(f"{self.place}/{LOG} has the file _last_checkpoint but no commit and no checkpoint. {_WAY}")

    def commit_state(self, version: int) -> FileState | None:
        """The state of the file with the commit of a version; None if it does not exist."""
        return commit_state(self._lake, self._table, version)

    def actions(self, kind: str, version: int, after: int = NO_TABLE) -> Iterator[dict[str, Any]]:
        """The actions of a kind up to and including a version, oldest first. Raises BrokenLog.

        With ``after``, only those of the commits after that version, if they still exist; otherwise all of them.
        """
        start, is_known = self._start(version, after)
        if not is_known:
            for name in self._checkpoints.get(start, ()):
                yield from self._checkpointed(name, kind)
        for _, action in self._committed(start, version, (kind,)):
            yield action

    def files(
        self, version: int, known: Mapping[str, dict[str, Any]] | None = None, after: int = NO_TABLE
    ) -> dict[str, dict[str, Any]]:
        """The action that added each file of a version of the table, by path. Raises BrokenLog.

        ``known`` are the files of the version ``after``: only newer commits are read, if they still exist.
        """
        start, is_known = self._start(version, after)
        if is_known:
            found = dict(known or {})
        else:
            added = (each for name in self._checkpoints.get(start, ()) for each in self._checkpointed(name, "add"))
            found = {action["path"]: action for action in added}
        for kind, action in self._committed(start, version, _FILE_ACTIONS):
            if kind == "add":
                found[action["path"]] = action
            else:
                found.pop(action["path"], None)
        return found

    def _start(self, version: int, after: int) -> tuple[int, bool]:
        """The version after which every commit exists, and whether it is ``after``; otherwise it has the checkpoint to
        begin with, if there is one. Raises BrokenLog."""
        start = max((each for each in self._checkpoints if each <= version), default=NO_TABLE)
        missing = [each for each in range(start + 1, version + 1) if each not in self._commits]
        if missing:
            named = ", ".join(map(str, missing[:NAMED])) + (" and more" if len(missing) > NAMED else "")
            raise BrokenLog(
                f"the transaction log of {self.place} is incomplete: the commits of versions {named} are missing, "
                f"and no complete checkpoint at or before version {version} covers them. {_WAY}"
            )
        if after != NO_TABLE and all(each in self._commits for each in range(after + 1, version + 1)):
            return after, True
        return start, False

    def _committed(self, after: int, version: int, kinds: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        """The actions of these kinds in the commits after a version, oldest first, with their kind."""
        marks = [(kind, f'"{kind}"'.encode()) for kind in kinds]
        for each in range(after + 1, version + 1):
            for line in self._read(f"{each:020d}.json").splitlines():
                for kind, mark in marks:
                    if mark in line and kind in (action := msgspec.json.decode(line)):
                        yield kind, action[kind]

    def _checkpointed(self, name: str, kind: str) -> Iterator[dict[str, Any]]:
        yield from self._rows(name, kind)
        if kind in _FILE_ACTIONS:
            for sidecar in list(self._rows(name, "sidecar")):
                # A path that is only a file name is relative to the folder of sidecars.
                path = sidecar["path"].rpartition("/")[2]
                yield from self._rows(f"_sidecars/{path}", kind)

    def _rows(self, name: str, kind: str) -> Iterator[dict[str, Any]]:
        raw = self._read(name)
        try:
            if name.endswith(".json"):
                found = [msgspec.json.decode(line).get(kind) for line in raw.splitlines() if line]
            else:
                file = pq.ParquetFile(pa.BufferReader(raw))
                if kind not in file.schema_arrow.names:
                    return
                found = file.read(columns=[kind]).column(kind).to_pylist()
        except (pa.ArrowException, msgspec.DecodeError) as error:
            raise BrokenLog(f"{self.place}/{LOG}/{name} cannot be read: {error}. {_WAY}") from None
        yield from (row for row in found if row is not None and row[_IDENTITY[kind]] is not None)

    def _read(self, name: str) -> bytes:
        raw = self._lake.read(f"{self._folder}{name}")
        if raw is None:
            raise BrokenLog(f"{self.place}/{LOG}/{name} is missing, or was removed while the log was read. {_WAY}")
        return raw


def commit_state(lake: Lake, table: str, version: int) -> FileState | None:
    """The state of the file with the commit of a version of a table; None if it does not exist. Does not list the
    log."""
    return lake.state(f"{table}/{LOG}/{version:020d}.json")


_WAY = (
    "The progress of the table is unknown, so nothing is added to it. Restore the missing files, or move the whole "
    "table away to rebuild it from the logs."
)
