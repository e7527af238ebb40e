"""The reference of the command line, from the program itself; its examples are commands of the documents."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from strandline.cli.commands import COMMANDS, load

DOCS = Path(__file__).parents[2] / "docs"
#: Commands that the documents run come first.
SOURCES = (
    "how-to/use-the-command-line.md",
    "how-to/backup.md",
    "how-to/operations.md",
    "reference/pipeline.md",
    "how-to/*.md",
    "**/*.md",
)
_BLOCK = re.compile(r"^```(?:console|sh)\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)


def render() -> str:
    return "\n".join(_commands({name: load(name) for name in COMMANDS}, "strandline"))


def _commands(commands: Mapping[str, Any], words: str) -> Iterator[str]:
    for name, command in commands.items():
        called = f"{words} {name}"
        if hasattr(command, "commands"):
            yield from (f"## {called}", "", _text(command.help), "")
            yield from _commands(command.commands, called)
        else:
            yield from _command(command, called, "###" if " " in words else "##")


def _command(command: Any, called: str, heading: str) -> Iterator[str]:
    shown = [param for param in command.params if not getattr(param, "hidden", False)]
    arguments = [param for param in shown if param.param_type_name == "argument"]
    options = [param for param in shown if param.param_type_name == "option"]
    usage = [called, *(["[OPTIONS]"] if options else []), *(_argument(param) for param in arguments)]
    example = _example(called)
    yield from (f"{heading} {called}", "", _text(command.help), "", "```sh", " ".join(usage), "```", "")
    yield from ("For example:", "", "```sh", example, "```", "")
    if shown:
        yield "| argument or option | default | meaning |"
        yield "|---|---|---|"
        for param in (*arguments, *options):
            meaning, _, stated = _cell(param.help or "").partition(" Default: ")
            default = _default(param) or (f"`{stated.removesuffix('.')}`" if stated else "")
            yield f"| {_names(param)} | {default} | {meaning}{_variable(param)} |"
        yield ""


def _argument(param: Any) -> str:
    name = (param.metavar or param.name).strip("[].").upper() + ("..." if param.nargs == -1 else "")
    return name if param.required else f"[{name}]"


def _names(param: Any) -> str:
    if param.param_type_name == "argument":
        return f"`{_argument(param)}`"
    value = "" if param.is_flag else f" {(param.metavar or param.name).upper()}"
    return ", ".join(f"`{name}{value}`" for name in (*param.opts, *param.secondary_opts))


def _default(param: Any) -> str:
    if param.required:
        return "required"
    value = param.default() if callable(param.default) else param.default
    if value is None or value == "" or getattr(param, "is_flag", False):
        return f"`{param.opts[0]}`" if value is True and param.secondary_opts else ""
    return f"`{value}`"


def _variable(param: Any) -> str:
    return f" Environment variable: `{param.envvar}`." if param.envvar else ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def _text(help: str | None) -> str:
    return inspect.cleandoc(help or "").replace("<", "&lt;").replace("*", "\\*")


def _example(called: str) -> str:
    """A command of the documents. Every command has one."""
    for pattern in SOURCES:
        for path in sorted(DOCS.glob(pattern)):
            for block in _BLOCK.findall(path.read_text()):
                found = re.search(
                    rf"^(?:\$ )?((?:[^#\n]*\| )?{called}(?: .*?)?)(?:   #.*)?$", block, flags=re.MULTILINE
                )
                if found and not found[1].endswith("\\"):
                    return found[1].strip()
    raise LookupError(f"no document has an example of {called!r}; add one to docs/reference/cli.md")
