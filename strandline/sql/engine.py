"""Runs a statement with DuckDB over the logs that it names and their lake."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import duckdb
import msgspec
from obstore.exceptions import BaseError

from strandline.client import Client
from strandline.extras import missing
from strandline.history.source import History, open_history
from strandline.lake.fence import LakeOfAnother, belongs
from strandline.lake.location import Lake
from strandline.late_import import is_raised_by
from strandline.sql.logs import LakeView, Logs
from strandline.sql.request import Limits
from strandline.sql.results import Result
from strandline.sql.statement import QueryFailed, check_statement, lists_tables, missing_table

#: Maximum attempts: if an erasure removes files of the lake during a read, the statement runs again.
ATTEMPTS = 3
#: Short, because a person waits for the answer.
PATIENCE_SECONDS = 3.0


class SqlSource(NamedTuple):
    """Where the logs are (by path or by URL), and optionally where their lake is."""

    path: str
    url: str
    key: str | None
    cold: str
    lake: str | None
    #: Shows a warning to the user, for example that the lake cannot be read.
    warn: Callable[[str], None]


def answer(source: SqlSource, statement: str, directory: Path, limits: Limits | None = None) -> Result:
    """Run a statement and store the result in the directory. Raises QueryFailed for an invalid statement.

    With ``limits``, the statement may come from anyone who may read the logs: it can only select, and reach neither
    files nor the network. The result may be truncated.
    """
    check_statement(statement, only_select=limits is not None)
    for attempt in range(1, ATTEMPTS + 1):
        with _opened(source) as (history, view):
            database = duckdb.connect(str(directory / f"{attempt}.duckdb"))
            try:
                _settle(database)
                if limits is not None:
                    _lock(database, limits, directory / "spill")
                logs = Logs(database, history, view)
                return Result(_bound(database, logs, statement), directory / f"{attempt}.arrow", limits)
            except (duckdb.Error, OSError) as error:
                if attempt < ATTEMPTS and view is not None and not view.is_whole():
                    continue
                if isinstance(error, duckdb.OutOfMemoryException):
                    raise QueryFailed(_needs_memory(error, limits), "limit") from None
                if isinstance(error, duckdb.Error):
                    raise QueryFailed(str(error).strip(), "statement") from None
                raise
            finally:
                database.close()
    raise AssertionError


def _settle(database: duckdb.DuckDBPyConnection) -> None:
    database.execute("set python_enable_replacements = false")
    database.execute("set TimeZone = 'UTC'")
    database.execute("set preserve_insertion_order = false")


def _lock(database: duckdb.DuckDBPyConnection, limits: Limits, spill: Path) -> None:
    """Bound the database, and take from it all access to files, the network and its own settings. Only the directory
    for its temporary files remains, which has nothing else in it."""
    for setting, value in {
        "memory_limit": f"'{limits.memory_bytes}B'",
        "threads": limits.threads,
        "temp_directory": "'" + str(spill).replace("'", "''") + "'",
        "max_temp_directory_size": f"'{limits.spill_bytes}B'",
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "allow_community_extensions": "false",
        "enable_external_access": "false",
        "lock_configuration": "true",
    }.items():
        database.execute(f"set {setting} = {value}")


def _needs_memory(error: duckdb.Error, limits: Limits | None) -> str:
    if limits is None:
        return str(error).strip()
    return (
        f"the query needs more than {limits.memory_bytes >> 20} MB of memory or {limits.spill_bytes >> 20} MB of "
        "temporary files; select fewer records or columns"
    )


def _bound(database: duckdb.DuckDBPyConnection, logs: Logs, statement: str) -> duckdb.DuckDBPyRelation | None:
    """Bind the statement. A log is added when DuckDB reports it as missing."""
    if lists_tables(statement):
        return logs.listing()
    missing = None
    while True:
        try:
            relation = database.sql(statement)
        except duckdb.CatalogException as error:
            before, missing = missing, missing_table(error)
            if missing is None or missing == before:
                raise
        else:
            logs.check_names(statement)
            return relation
        if not logs.add(missing):
            raise QueryFailed(f"log {missing!r} not found; list the names with `strandline log ls`", "not_found")


# --- locations of logs and lake ------------------------------------------------------------------------------------


@contextmanager
def _opened(source: SqlSource) -> Iterator[tuple[History, LakeView | None]]:
    """Open the lake first, then the history, so that the history is at least as new."""
    place = str(Path(source.path) / "lake") if source.path else _told_lake(source)
    if source.lake is not None:
        if not place:
            raise QueryFailed(
                "this API key is restricted to some logs and cannot read a lake; remove --lake to read from the logs",
                "not_allowed",
            )
        place = source.lake
    view = _view(place, source) if place else None
    history = open_history(path=source.path, url=source.url, key=source.key, cold_url=source.cold)
    try:
        yield history, view if view is not None and _belongs(Lake.at(place), history, source) else None
    finally:
        history.close()


def _view(place: str, source: SqlSource) -> LakeView | None:
    """The lake, or None if there is none, or if it cannot be read and was not requested: logs are read instead."""
    is_chosen = source.lake is not None
    try:
        view = _open_view(place)
    except (OSError, BaseError) as error:
        message = f"cannot read the lake at {place}: {str(error).splitlines()[0]}"
        if is_chosen:
            raise QueryFailed(message) from None
        source.warn(f"warning: {message}; reading everything from the logs")
        return None
    if is_chosen and not view.exists:
        raise QueryFailed(f"no lake found at {place}; create one with `strandline pipeline run`", "not_found")
    return view if view.exists else None


def _open_view(place: str) -> LakeView:
    """Raises OSError or BaseError if there is a lake that cannot be read."""
    try:
        return LakeView(Lake.at(place))
    except ModuleNotFoundError as error:
        raise OSError(missing(error)) from None
    except Exception as error:
        if is_raised_by("deltalake.exceptions", "DeltaError", error):
            raise OSError(str(error)) from error
        raise


def _belongs(lake: Lake, history: History, source: SqlSource) -> bool:
    try:
        return belongs(lake, history.directory)
    except LakeOfAnother as error:
        if source.lake is not None or source.path:
            raise QueryFailed(str(error), "conflict") from None
        # The server's lake path exists on this machine too, but belongs to another server.
        return False


class _Pipeline(msgspec.Struct):
    lake: str


def _told_lake(source: SqlSource) -> str:
    """Where the server reports its lake; empty if the API key may not see it. Such a key does not see the erasures of
    other logs either, so it must not read the lake."""
    with Client(source.url, source.key, patience=PATIENCE_SECONDS) as client:
        answer = msgspec.json.decode(client.call("GET", "/pipeline").body, type=_Pipeline)
    return answer.lake
