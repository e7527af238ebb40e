"""A writer of one table that plans from what the table says, as the stages of a round do."""

from __future__ import annotations

import json
import sys

import pyarrow as pa

from strandline.lake.files import write_file
from strandline.lake.location import Lake
from strandline.lake.table import LakeTable, TableMoved, TableSnapshot

SCHEMA = pa.schema([("log", pa.string()), ("seq", pa.int64())])


def table_of(lake: Lake) -> LakeTable:
    return LakeTable(lake, "things", SCHEMA)


class Writer:
    """Plans the seqs after the progress of its log, and commits them together with the progress."""

    def __init__(self, lake: Lake, log: str = "a") -> None:
        self.lake = lake
        self.log = log
        self._plan: tuple[TableSnapshot, int] | None = None

    def look(self) -> None:
        snapshot = table_of(self.lake).snapshot()
        self._plan = snapshot, snapshot.progress().get(self.log, 0)

    def commit(self, count: int = 2) -> bool:
        """False if the table has moved since it was looked at."""
        if self._plan is None:
            self.look()
        assert self._plan is not None
        snapshot, after = self._plan
        through = after + count
        rows = pa.table({"log": [self.log] * count, "seq": list(range(after + 1, through + 1))}, schema=SCHEMA)
        file = write_file(self.lake, "things", SCHEMA, [rows])
        assert file is not None
        try:
            snapshot.commit(add=[file], progress={self.log: through})
        except TableMoved:
            self._plan = None
            return False
        self._plan = snapshot, through
        return True


def main(url: str, options: str, tries: str) -> None:
    """Commit as soon as there is a line on standard input, and say how often that succeeded."""
    writer = Writer(Lake.at(url, **json.loads(options)))
    print("ready", flush=True)
    sys.stdin.readline()
    print(sum(writer.commit() for _ in range(int(tries))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
