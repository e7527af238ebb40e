"""Calling commands of ``strandline`` in this process, as a shell would."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner, Result

from strandline.cli.commands import app


class Cli:
    """Calls commands, in this process."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __call__(self, *arguments: object, input: str | None = None, **environment: str) -> Result:
        # Not the contexts of the person who runs the tests.
        none = {"XDG_CONFIG_HOME": "/nowhere", "STRANDLINE_CONTEXT": ""}
        settings = {"STRANDLINE_URL": self.url, "STRANDLINE_KEY": "", "COLUMNS": "200", **none, **environment}
        return CliRunner().invoke(app, [str(argument) for argument in arguments], input=input, env=settings)

    def lines(self, *arguments: object, input: str | None = None) -> list[str]:
        """What a command that must not fail prints."""
        result = self(*arguments, input=input)
        assert result.exit_code == 0, result.output
        return result.stdout.splitlines()

    def words(self, *arguments: object) -> list[list[str]]:
        return [line.split() for line in self.lines(*arguments)]

    def json(self, *arguments: object, input: str | None = None) -> Any:
        """The one document that a command prints."""
        (line,) = self.lines(*arguments, "--json", input=input)
        return json.loads(line)

    def rows(self, *arguments: object) -> list[Any]:
        """The documents that a command prints, a line each."""
        return [json.loads(line) for line in self.lines(*arguments, "--json")]

    def fails(self, code: int, *arguments: object, input: str | None = None) -> str:
        """What a command that must end with this code says on standard error."""
        result = self(*arguments, input=input)
        assert result.exit_code == code, result.output
        return " ".join(result.stderr.split())
