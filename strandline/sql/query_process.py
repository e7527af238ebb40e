"""The process that runs one query for a server. It ends with the query, or when the server kills it.

The limits of the operating system apply to the whole process, so that a query that uses more memory or disk than DuckDB
counts cannot harm the server.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sys
import threading
from pathlib import Path
from time import sleep

import msgspec

from strandline.client import Refused, StrandlineError
from strandline.sql.engine import SqlSource, answer
from strandline.sql.request import RESULT, Column, Limits, QueryOutcome, QueryRequest
from strandline.sql.statement import QueryFailed

#: Requests have priority.
NICENESS = 5
#: How often the process looks whether the server still exists.
SERVER_CHECK_SECONDS = 0.5


def main() -> None:
    """Wait for a query on standard input, run it, and print the outcome."""
    os.nice(NICENESS)
    server = os.getppid()
    asked = sys.stdin.buffer.read()
    if not asked:  # the server has no query for this process, or has ended
        return
    request = msgspec.json.decode(asked, type=QueryRequest)
    confine(request.limits)
    threading.Thread(target=_end_with, args=(server, request.directory), daemon=True).start()
    sys.stdout.buffer.write(msgspec.json.encode(run(request)))


def confine(limits: Limits) -> None:
    """Set the limits of the operating system for this process."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (limits.process_bytes, limits.process_bytes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (limits.spill_bytes, limits.spill_bytes))
    # A write beyond the limit fails with an error instead of ending the process.
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    # The server kills the process when the time is over. This ends it even if the server is gone.
    signal.alarm(limits.seconds + 10)


def _end_with(server: int, directory: str) -> None:
    """End when the server was killed. It cannot remove the files of the query then, so this process does."""
    while os.getppid() == server:
        sleep(SERVER_CHECK_SECONDS)
    shutil.rmtree(directory, ignore_errors=True)
    os._exit(1)


def run(request: QueryRequest) -> QueryOutcome:
    """Run a query and write its result."""
    warnings: list[str] = []
    directory = Path(request.directory)
    source = SqlSource("", request.url, request.key, "", None, warnings.append)
    try:
        result = answer(source, request.statement, directory, request.limits)
        if result.truncated and request.format != "table":
            return QueryOutcome(fault="limit", message=_too_large(request.limits))
        result.write(request.format, directory / RESULT, request.limits.result_bytes)
    except QueryFailed as error:
        return QueryOutcome(fault="limit" if error.reason == "limit" else "statement", message=str(error))
    except MemoryError:
        return QueryOutcome(fault="limit", message="the query needs more memory than it may use")
    except Refused as error:
        # The caller may not read a log that the statement names.
        return QueryOutcome(fault="statement" if error.status < 500 else "source", message=str(error))
    except (StrandlineError, OSError) as error:
        return QueryOutcome(fault="source", message=str(error))
    columns = [Column(name, kind) for name, kind in zip(result.names, result.types, strict=True)]
    return QueryOutcome(columns=columns, rows=result.rows, truncated=result.truncated, warnings=warnings)


def _too_large(limits: Limits) -> str:
    return (
        f"the result has more than {limits.rows:,} rows or {limits.result_bytes >> 20} MB; select fewer rows, "
        "or use `strandline sql`, which has no limit"
    )


if __name__ == "__main__":
    main()
