"""All commands of ``strandline``. Only the module of the command that runs is imported, to start quickly."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Annotated, Any

import typer

from strandline import __version__
from strandline.cli.command_class import Command
from strandline.cli.exit_codes import CommandGroup
from strandline.cli.output import put
from strandline.cli.startup import this_process_runs_one_command

#: Where each command is, in the order of the help.
COMMANDS = {
    "serve": "serve:serve_command",
    "log": "log:app",
    "queue": "queue:app",
    "router": "router:app",
    "index": "index:app",
    "search": "search:search_command",
    "aggregate": "search:aggregate_command",
    "sql": "sql:sql_command",
    "types": "types:types_command",
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
#: All arguments are passed on to another program.
_PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def put_together(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """The program, with the commands of these names."""
    app = typer.Typer(name="strandline", no_args_is_help=True, cls=CommandGroup, pretty_exceptions_enable=False)
    app.callback()(strandline)
    for name in names:
        module, _, attribute = COMMANDS[name].partition(":")
        command: Any = getattr(import_module(f"strandline.cli.{module}"), attribute)
        if isinstance(command, typer.Typer):
            app.add_typer(command)
        else:
            app.command(name, cls=Command, context_settings=_PASSED_ON if name == "bench" else None)(command)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        put(f"strandline {__version__}")
        raise typer.Exit


def strandline(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """An append-only log server: run it, query it, and look after its data.

    Example:
      strandline serve --data data
      strandline log append orders '{"item":"book"}'
      strandline log tail orders --follow
    """


def called(arguments: list[str], completing: str | None) -> Iterable[str]:
    """The command that runs, or whose arguments a shell completes; all commands if the first word is not a command."""
    words = arguments if completing is None else completing.split()[1:-1]
    if words and words[0] in COMMANDS:
        return [words[0]]
    return () if words == ["--version"] else COMMANDS


def run() -> None:
    """Run a command, and nothing else in this process."""
    this_process_runs_one_command()
    put_together(called(sys.argv[1:], os.environ.get("COMP_WORDS")))()
