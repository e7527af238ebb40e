"""All commands of ``strandline``. Only the module of the command that runs is imported, to start quickly."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
import typer.main
from typer.core import TyperCommand

from strandline import __version__
from strandline.cli.command_class import Command, Group, ReadingCommand, TableCommand
from strandline.cli.exit_codes import CommandGroup
from strandline.cli.output import put
from strandline.cli.startup import this_process_runs_one_command


class CommandPlace(NamedTuple):
    """Where a command is, and the first line of its help: what the list of all commands needs without importing it."""

    attribute: str
    line: str
    kind: type[Command] = Command


#: All commands, in the order of the help.
COMMANDS = {
    "serve": CommandPlace("serve:serve_command", "Run a server on a data directory."),
    "takeover": CommandPlace(
        "takeover:takeover_command", "Let a standby server take over from the server that uses a replica."
    ),
    "log": CommandPlace("log:app", "Create, list, read, append to and delete logs."),
    "queue": CommandPlace("queue:app", "Inspect the jobs of a queue, and process them."),
    "consumer": CommandPlace("consumer:app", "List, move and delete the named consumers of logs."),
    "router": CommandPlace("router:app", "Copy new records of one log to another log."),
    "subscription": CommandPlace(
        "subscription:app", "List the subscriptions to streams: webhooks and wakes of workers."
    ),
    "schema": CommandPlace("schema:app", "Show, install and infer the JSON Schema of a log."),
    "keys": CommandPlace("keys:app", "List, add, rotate and revoke the API keys of a server."),
    "clients": CommandPlace("clients:app", "List the open connections of a server, and end one."),
    "audit": CommandPlace(
        "audit:audit_command",
        "Show who changed the server and its logs: the last entries of the audit log, oldest first.",
        TableCommand,
    ),
    "index": CommandPlace("index:app", "Make the records of a log searchable."),
    "search": CommandPlace(
        "search:search_command",
        "Search the records of a log. The log needs a search configuration, see `strandline index`.",
        ReadingCommand,
    ),
    "aggregate": CommandPlace(
        "search:aggregate_command",
        "Aggregate the records of a log by time and fields, with a rollup of its search configuration.",
        TableCommand,
    ),
    "ping": CommandPlace("server_state:ping_command", "Check that a server answers, and how quickly.", ReadingCommand),
    "info": CommandPlace(
        "server_state:info_command", "Show the version, the health and the size of a server.", TableCommand
    ),
    "top": CommandPlace(
        "top:top_command",
        "Show what a server does right now: rates, the busiest logs, queues, and consumers that lag.",
        ReadingCommand,
    ),
    "doctor": CommandPlace(
        "doctor:doctor_command",
        "Check a server, this machine and a data directory, and say what to do.",
        ReadingCommand,
    ),
    "sql": CommandPlace(
        "sql:sql_command",
        "Query logs with SQL. Every log is a table with the columns seq, ts, key, node, meta and data.",
        TableCommand,
    ),
    "context": CommandPlace("context:app", "Name servers, and choose the one that commands talk to."),
    "types": CommandPlace(
        "types:types_command", "Write the types of the declared tables, for TypeScript or for Python."
    ),
    "shell": CommandPlace("shell:shell_command", "Open a prompt for commands and SQL, with completion and a history."),
    "demo": CommandPlace(
        "demo.command:demo_command",
        "Show the features of the server in about a minute and a half, and check every result.",
    ),
    "verify": CommandPlace(
        "verify:verify_command", "Check the files and logs of a data directory. Without --repair, nothing is changed."
    ),
    "dump": CommandPlace(
        "verify:dump_command", "Print the content of a file of a data directory, including damage.", ReadingCommand
    ),
    "backup": CommandPlace("backup:backup_command", "Back up a data directory, even while a server is running on it."),
    "restore": CommandPlace(
        "backup:restore_command",
        "Restore a backup into a new data directory: the newest one, or the state at a given time.",
    ),
    "import": CommandPlace(
        "import_:import_command", "Import the rows of files, or the messages of Kafka topics, into logs."
    ),
    "export": CommandPlace(
        "export:export_command", "Export the records of logs to Parquet, JSON or CSV files, or to a Kafka topic."
    ),
    "bench": CommandPlace("bench:bench_command", "Measure how fast a server appends, reads and delivers records."),
    "pipeline": CommandPlace("pipeline:app", "Copy the history of logs to a lake with Spark."),
}


@cache
def load(name: str) -> Any:
    """Import a command or a group of commands."""
    module, _, attribute = COMMANDS[name].attribute.partition(":")
    command: Any = getattr(import_module(f"strandline.cli.{module}"), attribute)
    if isinstance(command, typer.Typer):
        command.info.cls = Group
        return typer.main.get_group(command)
    alone = typer.Typer(add_completion=False)
    alone.command(name, cls=COMMANDS[name].kind)(command)
    return typer.main.get_command(alone)


class Program(CommandGroup):
    """The group of all commands. It imports a command when the command runs or a shell completes its arguments."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name, place in COMMANDS.items():
            self.add_command(TyperCommand(name, help=place.line))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return name, None if command is None else load(str(name)), rest


app = typer.Typer(name="strandline", no_args_is_help=True, cls=Program, pretty_exceptions_enable=False)


def _print_version(wanted: bool) -> None:
    if wanted:
        put(f"strandline {__version__}")
        raise typer.Exit


def _complete_context(incomplete: str) -> list[str]:
    from strandline.cli.contexts import complete_context

    return complete_context(incomplete)


@app.callback()
def strandline(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    url: Annotated[
        str | None,
        typer.Option("--url", metavar="URL", help="URL of the server, or of it and its standbys, separated by commas."),
    ] = None,
    api_key: Annotated[
        str | None, typer.Option("--api-key", metavar="KEY", help="API key, if the server requires one.")
    ] = None,
    context: Annotated[
        str | None,
        typer.Option(
            "--context",
            metavar="NAME",
            help="Talk to the server of this context. Default: STRANDLINE_CONTEXT, or the current context.",
            autocompletion=_complete_context,
        ),
    ] = None,
) -> None:
    """An append-only log server: run it, query it, and look after its data.

    --url and --api-key may also follow the name of a command.

    Example:
      strandline serve --data data
      strandline log append orders '{"item":"book"}'
      strandline log tail orders --follow
    """


def run() -> None:
    """Run a command, and nothing else in this process."""
    this_process_runs_one_command()
    app()
