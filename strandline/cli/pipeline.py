"""``strandline pipeline``: the history on Spark.

Exit codes of ``run``: 0 it is done, or was told to stop; 1 it failed; 2 the command makes no sense; 3 Spark or Java is
missing or does not start; 4 another pipeline is at work on the lake, or has taken it over.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from strandline.cli.output import say
from strandline.engine.errors import EngineError
from strandline.history.http import BadUrl, ServerFailure

EXIT_FAILED, EXIT_USAGE, EXIT_MISSING, EXIT_IN_USE = 1, 2, 3, 4

app = typer.Typer(name="pipeline", no_args_is_help=True, help="Process the history on Spark.")

_Data = Annotated[
    Path | None, typer.Option("--data", metavar="DIR", help="A data directory, whether or not a server runs on it.")
]
_Url = Annotated[str | None, typer.Option("--url", metavar="URL", help="A server.")]
_Key = Annotated[
    str | None,
    typer.Option("--key", metavar="KEY", envvar="STRANDLINE_KEY", help="The server's key, if it asks for one."),
]
_Lake = Annotated[
    str | None, typer.Option("--lake", metavar="PLACE", help="A directory or s3://bucket/prefix; else DIR/lake.")
]


@app.command("run")
def run_command(
    data: _Data = None,
    url: _Url = None,
    key: _Key = None,
    lake: _Lake = None,
    once: Annotated[
        bool, typer.Option("--once", help="Cover everything that is acknowledged now, then end. The default.")
    ] = False,
    continuous: Annotated[bool, typer.Option("--continuous", help="Go on until told to stop.")] = False,
    supervised: Annotated[
        bool,
        typer.Option("--supervised", help="Go on by a line on standard input each; end when that closes.", hidden=True),
    ] = False,
    interval: Annotated[
        float, typer.Option("--interval", metavar="S", min=0.0, help="With --continuous, look so often for more.")
    ] = 30.0,
    master: Annotated[
        str, typer.Option("--master", metavar="URL", help="Where Spark runs: local[*], local[N], spark://host:port …")
    ] = "local[*]",
    remote: Annotated[
        str | None, typer.Option("--remote", metavar="URL", help="Spark Connect instead: sc://host:port.")
    ] = None,
    logs: Annotated[
        list[str] | None, typer.Option("--logs", metavar="NAME", help="Only this log. Can be given more than once.")
    ] = None,
    prefix: Annotated[str, typer.Option("--prefix", metavar="TEXT", help="Only logs whose names begin so.")] = "",
    cold: Annotated[
        str, typer.Option("--cold", metavar="URL", help="The cold tier of the data directory, if it has one.")
    ] = "",
    conf: Annotated[
        list[str] | None,
        typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark. Can be given more than once."),
    ] = None,
) -> None:
    """Bring the lake up to date with the history, once or for as long as it runs.

    Exit code 0: done, or told to stop; 1: failed; 2: the command makes no sense; 3: Spark or Java is missing; 4:
    another pipeline is at work on the lake, or has taken it over.
    """
    if once + continuous + supervised > 1:
        raise typer.BadParameter("give one of --once and --continuous")
    from strandline.cli.pipeline_run import Job, run

    job = Job(
        path="" if data is None else str(data),
        url=url or "",
        key=key,
        cold=cold,
        lake=lake_of(data, url, lake),
        mode="supervised" if supervised else "continuous" if continuous else "once",
        interval=interval,
        master=master,
        remote=remote,
        conf=parse_conf(conf or []),
        logs=tuple(logs or ()),
        prefix=prefix,
    )
    try:
        code = run(job)
    except BadUrl as error:
        raise typer.BadParameter(str(error), param_hint="--url") from None
    except (EngineError, ServerFailure, OSError) as error:
        say(str(error))
        code = EXIT_FAILED
    raise typer.Exit(code)


def lake_of(data: Path | None, url: str | None, lake: str | None) -> str:
    """Where the lake is. Raises BadParameter where it is not clear what is meant."""
    if (data is None) == (url is None):
        raise typer.BadParameter("give either --data or --url")
    if lake is None and data is None:
        raise typer.BadParameter("say with --lake where the lake is: with --url there is no directory for it")
    if data is not None and not data.is_dir():
        raise typer.BadParameter(f"{data} is not a directory", param_hint="--data")
    return lake or str(data / "lake" if data is not None else "")


def parse_conf(conf: list[str]) -> dict[str, str]:
    settings: dict[str, str] = {}
    for one in conf:
        name, equals, value = one.partition("=")
        if not equals or not name.startswith("spark."):
            raise typer.BadParameter(f"{one!r} is not like spark.name=value", param_hint="--conf")
        settings[name] = value
    return settings


@app.command("status")
def status_command(
    data: _Data = None,
    url: _Url = None,
    key: _Key = None,
    lake: _Lake = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as one JSON object.")] = False,
) -> None:
    """How the pipeline of a lake is doing: from the lake itself, or from the server that looks after it."""
    if sum(one is not None for one in (data, url, lake)) != 1:
        raise typer.BadParameter("give one of --data, --url and --lake")
    from strandline.cli.pipeline_status import from_lake, from_server

    if url is not None:
        code = from_server(url, key, as_json)
    else:
        code = from_lake(lake or lake_of(data, None, None), as_json)
    raise typer.Exit(code)
