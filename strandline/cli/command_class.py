"""The classes of commands and groups: former option names, the layout of the help text, and a quick start."""

from __future__ import annotations

import sys
from functools import cache
from typing import Annotated, Any, Literal

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from strandline.cli.output import discard_output, printing_csv
from strandline.cli.server_choice import choose_server

#: Options that were renamed, by their former names. A former name works for one release and is not in the help.
FORMER_NAMES = {
    "--key": "--api-key",
    "--cap-records": "--max-records",
    "--cap-bytes": "--max-bytes",
    "--ttl": "--max-age",
    "--keys": "--filter",
}
#: A paragraph of a docstring that starts with this keeps its line breaks.
EXAMPLE = "Example"


class Group(TyperGroup):
    """A group of commands."""


class Command(TyperCommand):
    """A command. If it has ``--json``, it also has ``--output``."""

    #: Whether it prints one table or one object, which can be printed as CSV.
    prints_table = False

    def __init__(self, name: str | None, *, help: str | None = None, **settings: Any) -> None:
        super().__init__(name, help=None if help is None else _unwrapped(help), **settings)
        if any(param.name == "as_json" for param in self.params):
            self.params.append(_output_option(self.prints_table))

    def make_parser(self, ctx: Any) -> Any:
        parser: Any = super().make_parser(ctx)
        options = parser._long_opt
        for former, name in FORMER_NAMES.items():
            if name in options:
                options.setdefault(former, options[name])
        return parser

    def invoke(self, ctx: Any) -> Any:
        choose_server(ctx)
        format = ctx.meta.pop(_OUTPUT, None)
        chosen = [name for name in ("as_json", "as_csv", "parquet") if ctx.params.get(name)]
        if format is not None and chosen and chosen != [f"as_{format}"]:
            raise typer.BadParameter(f"--output {format} cannot be combined with --{chosen[0].removeprefix('as_')}")
        if format == "json":
            ctx.params["as_json"] = True
        elif format == "csv" and "as_csv" in ctx.params:
            ctx.params["as_csv"] = True
        elif format == "csv":
            with printing_csv():
                return super().invoke(ctx)
        return super().invoke(ctx)


class ReadingCommand(Command):
    """A command that changes nothing: it is done when the program that reads its output has read enough."""

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            discard_output()
            return None
        return result


class TableCommand(ReadingCommand):
    """A command that prints one table or one object."""

    prints_table = True


_OUTPUT = "strandline.output"


def _remember_output(ctx: typer.Context, value: str | None) -> None:
    if value is not None:
        ctx.meta[_OUTPUT] = value


@cache
def _output_option(csv: bool) -> Any:
    """The option ``--output``, as typer builds it."""

    def with_csv(
        output: Annotated[
            Literal["table", "json", "csv"] | None,
            typer.Option("--output", help=_OUTPUT_HELP, callback=_remember_output, expose_value=False),
        ] = None,
    ) -> None: ...

    def without_csv(
        output: Annotated[
            Literal["table", "json"] | None,
            typer.Option("--output", help=_OUTPUT_HELP, callback=_remember_output, expose_value=False),
        ] = None,
    ) -> None: ...

    app = typer.Typer(add_completion=False)
    app.command()(with_csv if csv else without_csv)
    (option,) = (param for param in typer.main.get_command(app).params if param.name == "output")
    return option


_OUTPUT_HELP = "Format of the output; json is the same as --json. Default: table."


def _unwrapped(text: str) -> str:
    """The lines of a paragraph joined: the terminal's width decides where they break."""
    paragraphs = text.split("\n\n")
    return "\n\n".join(each if each.startswith(EXAMPLE) else each.replace("\n", " ") for each in paragraphs)
