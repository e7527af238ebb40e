"""The help of every command: a line that a stranger understands, an example that parses, and a line per option."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from support.command_line import app
from typer.testing import CliRunner

from strandline.cli.command_class import FORMER_NAMES, Command
from strandline.cli.commands import COMMANDS as PLACES
from strandline.cli.commands import load

#: Turns of phrase that hide what is meant; a sentence that needs one is rewritten.
UNCLEAR = re.compile(
    r"\b(whoever|nobody|somebody|anew|so many|so long|is told|are told|goes on|go on|for good|at hand|brings along"
    r"|is no \w+|makes? no sense|begins? so|there is no|what is there|given up)\b",
    re.IGNORECASE,
)


def commands() -> Iterator[tuple[str, Any]]:
    for name in PLACES:
        command = load(name)
        if hasattr(command, "commands"):
            yield from ((f"{name} {word}", each) for word, each in command.commands.items())
        else:
            yield name, command


COMMANDS = dict(commands())


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_a_line_an_example_and_a_line_for_every_option(name: str) -> None:
    command = COMMANDS[name]
    assert isinstance(command, Command)
    first, *rest = command.help.split("\n\n")
    assert len(first) <= 100
    assert first.endswith(".")
    (example,) = (each for each in rest if each.startswith("Example"))
    assert all(line.startswith("  ") for line in example.splitlines()[1:])
    assert any(f"strandline {name} " in f"{line} " for line in example.splitlines())
    texts = [command.help, *(param.help for param in command.params)]
    assert all(texts), [param.name for param in command.params if not param.help]
    for text in texts:
        assert not UNCLEAR.search(text), text
        assert "\n" not in text or text == command.help, text


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_of_a_command_can_be_parsed(name: str) -> None:
    command = COMMANDS[name]
    for line in command.help.partition("Example")[2].splitlines():
        words = shlex.split(re.split(" [<>] ", line)[0])
        if "strandline" in words:
            start = words.index("strandline") + 1 + len(name.split())
            command.make_context(name, words[start:])


def test_the_list_of_all_commands_has_the_first_line_of_each() -> None:
    lines = {name: load(name).help.split("\n\n")[0] for name in PLACES}
    assert lines == {name: place.line for name, place in PLACES.items()}
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).output
    listed = shown.partition("Commands")[2].splitlines()
    assert [word for line in listed for word in line.split()[1:2] if word in PLACES] == [*PLACES]


def test_former_names_of_options_work_and_are_not_in_the_help() -> None:
    named = {option for command in COMMANDS.values() for param in command.params for option in param.opts}
    assert set(FORMER_NAMES.values()) <= named
    assert not named & set(FORMER_NAMES)
    shown = CliRunner().invoke(app, ["log", "create", "--help"], env={"COLUMNS": "200"}).output
    assert "--max-records" in shown
    assert "--cap-records" not in shown
