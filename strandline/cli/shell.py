"""``strandline shell``: a prompt for commands and SQL, or a Python prompt on a data directory."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli.exit_codes import Exit
from strandline.cli.options import ApiKey, Url
from strandline.cli.output import counted, put, say
from strandline.cli.server_choice import DEFAULT_URL, KEY_VARIABLE, URL_VARIABLE, environment_server
from strandline.cli.shell_words import BUILT_IN, Completer, is_sql

if TYPE_CHECKING:
    from types import ModuleType

#: Lines that the history keeps.
HISTORY_LINES = 2000
#: Commands that keep the terminal to themselves.
ELSEWHERE = frozenset({"serve", "shell"})
BANNER = """\
Commands and SQL for the server at {url}. Press Tab to complete names, Ctrl-D to leave.

  log ls                     a command, without `strandline`
  select * from "orders";    SQL, up to a semicolon
  help                       all commands"""


def shell_command(
    directory: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DIR]",
            help="Open this data directory at a Python prompt instead; it is created if it does not exist.",
            show_default=False,
        ),
    ] = None,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Open a prompt for commands and SQL, with completion and a history.

    Where standard input is not a terminal, its lines are run one after the other, up to the first that fails.

    With DIR, open a data directory at a Python prompt. No server may be running on it.

    Example:
      strandline shell
      strandline shell data
    """
    if directory is not None:
        _open_directory(directory)
        return
    before = {name: os.environ.get(name) for name in (URL_VARIABLE, KEY_VARIABLE)}
    try:
        _talk_to(url, api_key)
        raise typer.Exit(_at_terminal() if sys.stdin.isatty() else _lines_of(sys.stdin))
    finally:
        for name, value in before.items():
            _set(name, value)


def _talk_to(url: str | None, api_key: str | None) -> None:
    """The commands at the prompt find their server in the environment, as all commands do."""
    _set(URL_VARIABLE, url)
    _set(KEY_VARIABLE, api_key)


def _set(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


# --- the two ways to read lines --------------------------------------------------------------------------------------


def _at_terminal() -> int:
    put(BANNER.format(url=environment_server()[0]))
    readline = _with_completion()
    try:
        for statement in _statements(_typed(readline)):
            run(statement)
    except (EOFError, SystemExit):
        put()
    finally:
        if readline is not None:
            _save_history(readline)
    return Exit.FINE


def _typed(readline: ModuleType | None) -> Iterator[str]:
    """The lines that a person types. Ctrl-C discards what was typed. Secrets are not kept in the history."""
    while True:
        host = environment_server()[0].partition("//")[2]
        try:
            line = input(f"{host}> " if not _continued else f"{'...':>{len(host)}}> ")
        except KeyboardInterrupt:
            put()
            _continued.clear()
            continue
        if readline is not None and "--api-key" in line:
            with suppress(ValueError):
                readline.remove_history_item(readline.get_current_history_length() - 1)
        yield line


def _lines_of(file: Any) -> int:
    for statement in _statements(line.rstrip("\n") for line in file):
        try:
            code = run(statement)
        except SystemExit:
            break
        if code:
            return code
    if _continued:
        say("the last statement has no semicolon at its end")
        return Exit.USAGE
    return Exit.FINE


#: The lines of a statement in SQL that has no semicolon yet.
_continued: list[str] = []


def _statements(lines: Iterator[str]) -> Iterator[str]:
    """Commands, and statements in SQL, which end with a semicolon at the end of a line."""
    _continued.clear()
    for line in lines:
        if not _continued and not is_sql(line):
            yield line
            continue
        _continued.append(line)
        if line.rstrip().endswith(";"):
            statement = "\n".join(_continued)
            _continued.clear()
            yield statement


def run(statement: str) -> int:
    """Run a command or a statement. Returns its exit code. Raises SystemExit for ``exit``."""
    if is_sql(statement):
        return _call(["sql", statement])
    try:
        words = shlex.split(statement, comments=True)
    except ValueError as error:
        say(f"{error}: {statement}")
        return Exit.USAGE
    if words[:1] == ["strandline"]:
        del words[0]
    if not words:
        return Exit.FINE
    if words[0] in BUILT_IN:
        if words[0] != "help":
            raise SystemExit
        words = [*words[1:], "--help"]
    if words[0] in ELSEWHERE:
        say(f"`{words[0]}` needs a terminal of its own; run it in another one")
        return Exit.USAGE
    code = _call(words)
    if words[:2] == ["context", "use"] and code == Exit.FINE:
        _talk_to(None, None)
    return code


def _call(words: list[str]) -> int:
    from strandline.cli.commands import app

    try:
        app(words, prog_name="strandline")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else Exit.FAILED if ended.code else Exit.FINE
    except KeyboardInterrupt:
        put()
        return 130
    return Exit.FINE


# --- completion and history -------------------------------------------------------------------------------------------


def _with_completion() -> ModuleType | None:
    """The module readline, prepared; None if Python has none."""
    try:
        import readline
    except ImportError:
        return None
    completer = Completer(readline.get_line_buffer)
    readline.set_completer(completer)
    readline.set_completer_delims(" \t\n,()=")
    readline.parse_and_bind("bind ^I rl_complete" if "libedit" in (readline.__doc__ or "") else "tab: complete")
    readline.set_history_length(HISTORY_LINES)
    with suppress(OSError):
        readline.read_history_file(history_path())
    return readline


def history_path() -> Path:
    directory = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(directory) / "strandline" / "history"


def _save_history(readline: Any) -> None:
    path = history_path()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
        readline.write_history_file(path)
    except OSError as error:
        say(f"cannot write the history to {path}: {error.strerror}")


# --- a data directory -------------------------------------------------------------------------------------------------

HINT = """\
The data directory {path} is open as `engine`; it has {count}.

  log = engine.create("orders", Config(durability="fsync")).wait()
  log.append(Batch.of(b'{{"id": 1}}', key="customer-7")).wait()
  list(log.read(after=0, limit=10))
  engine.names()

Exit with exit() or Ctrl-D; this closes the data directory."""


def _open_directory(directory: Path) -> None:
    import code

    from strandline.engine import Batch, Config, Engine, Producer

    with Engine.open(directory) as engine:
        names = {"engine": engine, "Batch": Batch, "Config": Config, "Producer": Producer}
        code.interact(banner=HINT.format(path=directory, count=counted(len(engine), "log")), local=names, exitmsg="")
