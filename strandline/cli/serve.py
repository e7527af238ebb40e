"""``strandline serve``.

Exit codes: 0 stopped by a signal, 1 cannot run, 2 invalid settings, 3 damaged data directory.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from strandline.cli.output import put, say
from strandline.cli.startup import keep_pandas_out, quick_imports
from strandline.server.settings import (
    OPTIONS,
    SETTINGS,
    VARIABLES,
    BadSettings,
    Settings,
    check_exposure,
    describe,
    toml,
)
from strandline.server.settings_sources import load

if TYPE_CHECKING:
    from strandline.server.pipeline.supervisor import Program


def _help(option: str) -> str:
    """The help of an option: the sentence of its setting, with the default."""
    setting = SETTINGS[OPTIONS[option]]
    return f"{setting.sentence} Default: {toml(setting.default)}." if setting.default != "" else setting.sentence


def serve_command(
    host: Annotated[str | None, typer.Option("--host", metavar="HOST", help=_help("--host"))] = None,
    port: Annotated[int | None, typer.Option("--port", metavar="PORT", help=_help("--port"))] = None,
    port_file: Annotated[str | None, typer.Option("--port-file", metavar="FILE", help=_help("--port-file"))] = None,
    data: Annotated[str | None, typer.Option("--data", metavar="DIR", help=_help("--data"))] = None,
    replica: Annotated[str | None, typer.Option("--replica", metavar="URL", help=_help("--replica"))] = None,
    standby: Annotated[bool, typer.Option("--standby", help=_help("--standby"))] = False,
    advertise: Annotated[str | None, typer.Option("--advertise", metavar="ADDRESS", help=_help("--advertise"))] = None,
    follow: Annotated[str | None, typer.Option("--follow", metavar="URL", help=_help("--follow"))] = None,
    pipeline: Annotated[str | None, typer.Option("--pipeline", metavar="MODE", help=_help("--pipeline"))] = None,
    lake: Annotated[str | None, typer.Option("--lake", metavar="PLACE", help=_help("--lake"))] = None,
    declare: Annotated[str | None, typer.Option("--declare", metavar="FILE", help=_help("--declare"))] = None,
    collections: Annotated[
        str | None, typer.Option("--collections", metavar="FILE", help=_help("--collections"))
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="TOML file with settings. Default: none.")
    ] = None,
    no_fast_lane: Annotated[
        bool, typer.Option("--no-fast-lane", help="Answer all requests through ASGI, without the fast lane.")
    ] = False,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print the effective settings as TOML and exit.")
    ] = False,
    log_level: Annotated[str | None, typer.Option("--log-level", metavar="LEVEL", help=_help("--log-level"))] = None,
) -> None:
    """Run a server on a data directory.

    Options override STRANDLINE_* environment variables, which override the settings in the file of --config. Set API
    keys with STRANDLINE_API_KEYS or in the file.

    Exit codes: 0 stopped by a signal; 1 cannot run; 2 invalid settings; 3 damaged data directory.

    Example:
      strandline serve --data /var/lib/strandline --port 4000
      STRANDLINE_API_KEYS=secret strandline serve --host 0.0.0.0
      strandline serve --data data --replica s3://bucket/prefix --standby
      strandline serve --data cache --follow s3://bucket/prefix
    """
    options: dict[str, object] = {
        "--host": host,
        "--port": port,
        "--port-file": port_file,
        "--data": data,
        "--replica": replica,
        "--standby": True if standby else None,
        "--advertise": advertise,
        "--follow": follow,
        "--log-level": log_level,
        "--pipeline": pipeline,
        "--lake": lake,
        "--declare": declare,
        "--collections": collections,
        "--no-fast-lane": False if no_fast_lane else None,
    }
    try:
        settings = load(config, os.environ, {name: value for name, value in options.items() if value is not None})
        if not print_config:
            check_exposure(settings)
    except BadSettings as error:
        say(str(error))
        raise typer.Exit(2) from None
    for warning in settings.warnings:
        say(f"warning: {warning}")
    if print_config:
        put(describe(settings), end="")
        return
    # Only digests are needed from here on; the plain keys must not be passed on to child processes.
    for variable, setting in VARIABLES.items():
        if setting == "api_keys":
            os.environ.pop(variable, None)
    keep_pandas_out()
    # Only this command imports the HTTP stack.
    with quick_imports():
        from strandline.server.run import run

    try:
        code = run(settings, None if settings.pipeline.pipeline == "off" else program(settings))
    except BadSettings as error:
        say(str(error))
        raise typer.Exit(2) from error
    raise typer.Exit(code)


def program(settings: Settings) -> Program:
    """How the server starts the pipeline. The server itself does not depend on Spark."""
    from strandline.pipeline.spark_session import what_is_missing
    from strandline.server.pipeline.supervisor import Program

    chosen = settings.pipeline
    command = [sys.executable, "-m", "strandline", "pipeline", "run", "--supervised"]
    command += ["--data", settings.storage.data_dir, "--lake", settings.lake]
    command += ["--remote" if chosen.pipeline_master.startswith("sc://") else "--master", chosen.pipeline_master]
    if not chosen.pipeline_master.startswith("sc://"):
        command += ["--conf", f"spark.driver.memory={chosen.pipeline_memory}"]
    if chosen.pipeline_project:
        command += ["--project", chosen.pipeline_project]
    for jar in chosen.pipeline_jars:
        command += ["--jar", jar]
    if settings.storage.cold_url:
        command += ["--cold", settings.storage.cold_url]
    return Program(command, lambda: what_is_missing(chosen.pipeline_master))
