"""All commands of ``strandline``, put together, nothing else."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline import __version__
from strandline.cli.aggregating import aggregate_command
from strandline.cli.audit import audit_command
from strandline.cli.backup import backup_command, restore_command
from strandline.cli.benching import SETTINGS as BENCH_SETTINGS
from strandline.cli.benching import bench_command
from strandline.cli.catching import Catching
from strandline.cli.demo.command import demo_command
from strandline.cli.dump import dump_command
from strandline.cli.export import export_command
from strandline.cli.import_ import import_command
from strandline.cli.log import app as log_app
from strandline.cli.pipeline import app as pipeline_app
from strandline.cli.queue import app as queue_app
from strandline.cli.router import app as router_app
from strandline.cli.searching import search_command
from strandline.cli.serve import serve_command
from strandline.cli.shell import shell_command
from strandline.cli.sql import sql_command
from strandline.cli.verify import verify_command

app = typer.Typer(name="strandline", no_args_is_help=True, cls=Catching, pretty_exceptions_enable=False)
app.command("serve")(serve_command)
app.add_typer(log_app)
app.add_typer(queue_app)
app.add_typer(router_app)
app.command("search")(search_command)
app.command("aggregate")(aggregate_command)
app.command("sql")(sql_command)
app.command("shell")(shell_command)
app.command("demo")(demo_command)
app.command("verify")(verify_command)
app.command("dump")(dump_command)
app.command("backup")(backup_command)
app.command("restore")(restore_command)
app.command("import")(import_command)
app.command("export")(export_command)
app.command("bench", context_settings=BENCH_SETTINGS)(bench_command)
pipeline_app.command("audit")(audit_command)
app.add_typer(pipeline_app)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"strandline {__version__}")
        raise typer.Exit


@app.callback()
def strandline(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """An append-only event log server."""


def run() -> None:
    """Run a command."""
    app()
