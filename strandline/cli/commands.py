"""All commands of ``strandline``. Only that one is loaded which is called: a command is to answer at once."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Annotated, Any

import typer

from strandline import __version__
from strandline.cli.exit_codes import Catching
from strandline.cli.output import put

#: Where each is, in the order in which they are listed.
COMMANDS = {
    "serve": "serve:serve_command",
    "log": "log:app",
    "queue": "queue:app",
    "router": "router:app",
    "search": "search:search_command",
    "aggregate": "search:aggregate_command",
    "sql": "sql:sql_command",
    "shell": "verify:shell_command",
    "demo": "demo.command:demo_command",
    "verify": "verify:verify_command",
    "dump": "verify:dump_command",
    "backup": "backup:backup_command",
    "restore": "backup:restore_command",
    "import": "import_:import_command",
    "export": "export:export_command",
    "bench": "bench:bench_command",
    "pipeline": "pipeline:app",
}
#: What follows is for another program.
_PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def put_together(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """The program, with the commands of these names."""
    app = typer.Typer(name="strandline", no_args_is_help=True, cls=Catching, pretty_exceptions_enable=False)
    app.callback()(strandline)
    for name in names:
        module, _, attribute = COMMANDS[name].partition(":")
        command: Any = getattr(import_module(f"strandline.cli.{module}"), attribute)
        if isinstance(command, typer.Typer):
            app.add_typer(command)
        else:
            app.command(name, context_settings=_PASSED_ON if name == "bench" else None)(command)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        put(f"strandline {__version__}")
        raise typer.Exit


def strandline(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """An append-only event log server."""


def called(arguments: list[str], completing: str | None) -> Iterable[str]:
    """The command that is called, or whose arguments a shell asks to complete; all of them if that is none."""
    words = arguments if completing is None else completing.split()[1:-1]
    if words and words[0] in COMMANDS:
        return [words[0]]
    return () if words == ["--version"] else COMMANDS


def run() -> None:
    """Run a command."""
    put_together(called(sys.argv[1:], os.environ.get("COMP_WORDS")))()
