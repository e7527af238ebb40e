"""The files of declared tables: ``declared/<name>`` in the lake, and the checkpoints of their queries beside them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

from strandline.arrow import pa
from strandline.late_import import LateModule

if TYPE_CHECKING:
    import deltalake
else:
    deltalake = LateModule("deltalake")

#: The directory of the tables in a lake, and the one of their checkpoints in it.
DIRECTORY = "declared"
CHECKPOINTS = "_checkpoints"
REQUESTS = "_refresh"
#: The directory of Spark's own catalog. It stays empty.
WAREHOUSE = "_warehouse"
GENERATION = "generation.json"
#: A file whose time says when the files of a table were last cleaned up, and how often that happens.
CLEANED = "cleaned"
CLEAN_SECONDS = 86_400.0


def rows_of(table: deltalake.DeltaTable, columns: Iterable[str] | None = None) -> Any:
    """An Arrow reader of all rows of a table, with all columns or these. Unlike an Arrow dataset, this leaves out rows
    that deletion vectors mark as deleted."""
    chosen = "*" if columns is None else ", ".join('"' + name.replace('"', '""') + '"' for name in columns)
    return pa.RecordBatchReader.from_stream(
        deltalake.QueryBuilder().register("t", table).execute(f"select {chosen} from t")
    )


class Generation(msgspec.Struct, frozen=True):
    """The contents of a table since it was last computed again: an id, and the number of erasures before."""

    id: str
    erasures: int = 0


class DeclaredFiles:
    """Where the files of a lake's declared tables are. The lake must be in a directory that Spark's workers share."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @classmethod
    def of(cls, lake: Path) -> DeclaredFiles:
        """The files in the directory of a lake."""
        return cls(lake / DIRECTORY)

    @property
    def warehouse(self) -> Path:
        return self.directory / WAREHOUSE

    def table(self, name: str) -> Path:
        return self.directory / name

    def checkpoint(self, table: str, flow: str) -> Path:
        return self.directory / CHECKPOINTS / table / flow

    def exists(self, name: str) -> bool:
        return deltalake.DeltaTable.is_deltatable(str(self.table(name)))

    def names(self) -> list[str]:
        """The tables that exist, ascending."""
        return sorted(name for name in self._folders() if self.exists(name))

    def version(self, name: str) -> int:
        """The number of the last commit; -1 without a table."""
        return deltalake.DeltaTable(str(self.table(name))).version() if self.exists(name) else -1

    def generation(self, name: str, erasures: int) -> Generation:
        """The generation of a table; a new one, if there is none."""
        path = self.directory / CHECKPOINTS / name / GENERATION
        if path.exists():
            return msgspec.json.decode(path.read_bytes(), type=Generation)
        found = Generation(uuid4().hex, erasures)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".tmp")
        temporary.write_bytes(msgspec.json.encode(found))
        temporary.replace(path)
        return found

    def is_cleaning_due(self, name: str) -> bool:
        """Whether the files of a table were not cleaned up for a day. A new table is cleaned up after a day."""
        path = self.directory / CHECKPOINTS / name / CLEANED
        if not path.exists():
            self.cleaned(name)
        return time.time() - path.stat().st_mtime >= CLEAN_SECONDS

    def cleaned(self, name: str) -> None:
        path = self.directory / CHECKPOINTS / name / CLEANED
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    def find(self, name: str) -> deltalake.DeltaTable | None:
        """A table by its name, in upper or lower case."""
        found = next((each for each in self._folders() if each.lower() == name.lower()), None)
        return None if found is None or not self.exists(found) else deltalake.DeltaTable(str(self.table(found)))

    def _folders(self) -> list[str]:
        if not self.directory.is_dir():
            return []
        return [path.name for path in self.directory.iterdir() if not path.name.startswith("_")]

    # --- computing a table again -----------------------------------------------------------------------------------

    def request(self, name: str) -> None:
        """Ask the pipeline to compute a table again."""
        directory = self.directory / REQUESTS
        directory.mkdir(parents=True, exist_ok=True)
        (directory / name).touch()

    def requested(self) -> list[str]:
        directory = self.directory / REQUESTS
        return sorted(path.name for path in directory.iterdir()) if directory.is_dir() else []

    def remove(self, name: str) -> None:
        """Remove a table and its checkpoints. The request, if there is one, goes last: after a crash, it is done
        again before a query starts, so a checkpoint never stays without the rows that it stands for."""
        for path in (self.table(name), self.directory / CHECKPOINTS / name):
            if path.exists():
                shutil.rmtree(path)
        self.remove_request(name)

    def remove_request(self, name: str) -> None:
        (self.directory / REQUESTS / name).unlink(missing_ok=True)
