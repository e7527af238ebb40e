"""What commands that work on Spark have in common: their options, the session, and what becomes of errors."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from strandline.cli.output import say

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from strandline.pipeline.status import Reporter

EXIT_FAILED, EXIT_USAGE, EXIT_MISSING, EXIT_IN_USE = 1, 2, 3, 4

Data = Annotated[
    Path | None, typer.Option("--data", metavar="DIR", help="A data directory, whether or not a server runs on it.")
]
Url = Annotated[str | None, typer.Option("--url", metavar="URL", help="A server.")]
Key = Annotated[
    str | None,
    typer.Option("--key", metavar="KEY", envvar="STRANDLINE_KEY", help="The server's key, if it asks for one."),
]
Cold = Annotated[str, typer.Option("--cold", metavar="URL", help="The cold tier of the data directory, if it has one.")]
Master = Annotated[
    str, typer.Option("--master", metavar="URL", help="Where Spark runs: local[*], local[N], spark://host:port …")
]
Remote = Annotated[str | None, typer.Option("--remote", metavar="URL", help="Spark Connect instead: sc://host:port.")]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark. Can be given more than once."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the outcome as one JSON object.")]


def check_directory(data: Path | None) -> str:
    """The path, or nothing. Raises BadParameter if there is no such directory."""
    if data is not None and not data.is_dir():
        raise typer.BadParameter(f"{data} is not a directory", param_hint="--data")
    return "" if data is None else str(data)


@contextmanager
def session(master: str, remote: str | None, conf: dict[str, str], name: str) -> Iterator[SparkSession]:
    """The session of this process, if it has one already; else one of its own. Raises SparkUnavailable."""
    from strandline.pipeline.requirements import what_is_missing
    from strandline.pipeline.session import open_session

    shared = None if what_is_missing(remote or master) else _active()
    spark = shared or open_session(master, remote, conf, name)
    try:
        yield spark
    finally:
        if shared is None:
            _stop(spark)


def _active() -> SparkSession | None:
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def _stop(spark: SparkSession) -> None:
    try:
        spark.stop()
    except Exception:  # what runs elsewhere may be gone already, and Spark is not needed any more
        pass


@contextmanager
def watching() -> Iterator[Reporter]:
    """Progress on standard error: bars for people, lines for everybody else."""
    from strandline.cli.progress import make_watch
    from strandline.engine.clock import SystemClock
    from strandline.pipeline.status import StatusReporter

    watch = make_watch()
    try:
        yield StatusReporter(lambda status: None, SystemClock().now, watch=watch)
    finally:
        watch.close()


@contextmanager
def errors(failed: int = EXIT_FAILED) -> Iterator[None]:
    """What goes wrong on purpose is a line on standard error, and an exit code; ``failed`` for whatever has none of its
    own."""
    from deltalake.exceptions import DeltaError
    from obstore.exceptions import BaseError

    from strandline.engine.errors import EngineError
    from strandline.history.http import BadUrl, ServerFailure
    from strandline.lake.claim import LakeInUse
    from strandline.pipeline.requirements import SparkUnavailable
    from strandline.pipeline.rounds import LakeOfAnother, UnknownLogs
    from strandline.pipeline.status import describe

    try:
        yield
    except SparkUnavailable as error:
        say(str(error))
        raise typer.Exit(EXIT_MISSING) from None
    except (UnknownLogs, BadUrl) as error:
        say(str(error))
        raise typer.Exit(EXIT_USAGE) from None
    except LakeInUse as error:
        say(str(error))
        raise typer.Exit(EXIT_IN_USE) from None
    except (EngineError, ServerFailure, LakeOfAnother, OSError) as error:
        say(str(error))
        raise typer.Exit(failed) from None
    except (DeltaError, BaseError) as error:
        # What follows is how the library came to it.
        say(str(error).splitlines()[0])
        raise typer.Exit(failed) from None
    except Exception as error:
        if not is_spark_error(error):
            raise
        # Its own words bring pages of Java along, and Spark has said them already.
        say(describe(error))
        raise typer.Exit(failed) from None


def is_spark_error(error: Exception) -> bool:
    # Where it is not loaded, or not even installed, nothing of it can have been raised.
    spark_errors = sys.modules.get("pyspark.errors")
    return spark_errors is not None and isinstance(error, spark_errors.PySparkException)
