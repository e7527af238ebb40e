"""The words of a line at the prompt of ``strandline shell``, and their completion."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from typing import Any

from strandline.cli.commands import COMMANDS, load
from strandline.cli.connection import complete_log, complete_queue, complete_router
from strandline.cli.contexts import complete_context

BUILT_IN = ("help", "exit", "quit")
#: A line that begins with one of these words is SQL.
STARTS = ("select", "from", "with", "show", "describe", "summarize", "values", "pivot", "unpivot", "explain", "table")
WORDS = (
    *STARTS,
    *("where", "group by", "order by", "having", "limit", "distinct", "count(*)", "sum", "avg", "min", "max", "join"),
    *("left join", "on", "using", "and", "or", "not", "in", "is null", "like", "between", "as", "desc", "case", "when"),
    *("then", "else", "end", "union all", "interval", "tables", "now()", "date_trunc", "row_number() over"),
)
COLUMNS = ("seq", "ts", "key", "node", "meta", "data")
#: What completes an argument, by its name in the help.
_NAMES: dict[str, Callable[[str], list[str]]] = {
    "LOG": complete_log,
    "QUEUE": complete_queue,
    "ROUTER": complete_router,
    "NAME": complete_context,
}
_FIRST = re.compile(r"\s*(\w+)")


def is_sql(line: str) -> bool:
    """Whether a line is SQL. No command has the name of a word with which SQL begins."""
    first = _FIRST.match(line)
    return first is not None and first[1].lower() in STARTS


class Completer:
    """What readline asks for the ways to complete a word: the first, the second, and so on."""

    def __init__(self, line: Callable[[], str]) -> None:
        self._line = line
        self._found: list[str] = []

    def __call__(self, text: str, number: int) -> str | None:
        if number == 0:
            try:
                self._found = completions(self._line(), text)
            except Exception:
                # Readline prints no errors: nothing is completed.
                self._found = []
        if number >= len(self._found):
            return None
        # The next word can be typed at once if there is only one way.
        return self._found[number] + (" " if len(self._found) == 1 else "")


def completions(line: str, text: str) -> list[str]:
    """The words that start with ``text``, the last word of the line."""
    before = line[: len(line) - len(text)] if line.endswith(text) else line
    if is_sql(before):
        return _in_sql(before, text)
    try:
        words = [word for word in shlex.split(before) if word != "strandline"]
    except ValueError:
        return []
    if not words:
        return _starting(text, (*COMMANDS, *BUILT_IN, *STARTS))
    return _in_command(words, text)


def _in_sql(before: str, text: str) -> list[str]:
    """After ``from`` and ``join``: names of logs, quoted if they have to be. Elsewhere: words and columns."""
    last = before.split()[-1].lower() if before.split() else ""
    if last in ("from", "join", "describe", "summarize", "table"):
        names = complete_log(text.lstrip('"'))
        return [name if name.isidentifier() and not text.startswith('"') else f'"{name}"' for name in names]
    return _starting(text, (*WORDS, *COLUMNS))


def _in_command(words: list[str], text: str) -> list[str]:
    if words[0] not in COMMANDS:
        return []
    command, given = load(words[0]), words[1:]
    if hasattr(command, "commands"):
        if not given:
            return _starting(text, tuple(command.commands))
        command, given = command.commands.get(given[0]), given[1:]
        if command is None:
            return []
    options = {option: param for param in command.params for option in param.opts if option.startswith("-")}
    if text.startswith("-"):
        return _starting(text, tuple(option for option in options if option.startswith("--")))
    param = options.get(given[-1]) if given else None
    if param is None or getattr(param, "is_flag", False):
        arguments = [each for each in command.params if each.param_type_name == "argument"]
        place = len([word for word in given if not word.startswith("-")])
        param = arguments[min(place, len(arguments) - 1)] if arguments else None
    return [] if param is None else _values(param, given, text)


def _values(param: Any, given: list[str], text: str) -> list[str]:
    """The values of an option or an argument."""
    allowed = getattr(param.type, "choices", ())
    if allowed:
        return _starting(text, allowed)
    kind = (param.metavar or "").strip("[].")
    if kind == "CONSUMER" and given:
        from strandline.cli.connection import consumers_of

        return consumers_of(given[0], text)
    complete = _NAMES.get(kind)
    return [] if complete is None else complete(text)


def _starting(text: str, words: Sequence[str]) -> list[str]:
    return [word for word in words if word.startswith(text.lower() if word in WORDS else text)]
