"""The class of every command: it accepts former option names, and lays out the help text."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

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


class Command(TyperCommand):
    def __init__(self, name: str | None, *, help: str | None = None, **settings: Any) -> None:
        super().__init__(name, help=None if help is None else _unwrapped(help), **settings)

    def make_parser(self, ctx: Any) -> Any:
        parser: Any = super().make_parser(ctx)
        options = parser._long_opt
        for former, name in FORMER_NAMES.items():
            if name in options:
                options.setdefault(former, options[name])
        return parser


def _unwrapped(text: str) -> str:
    """The lines of a paragraph joined: the terminal's width decides where they break."""
    paragraphs = text.split("\n\n")
    return "\n\n".join(each if each.startswith(EXAMPLE) else each.replace("\n", " ") for each in paragraphs)
