"""Contexts: named servers with their API keys, in a file that only the user may read."""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from strandline.cli.exit_codes import CommandFailed, Exit
from strandline.cli.output import say

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_PRIVATE = 0o600


class NamedServer(msgspec.Struct, omit_defaults=True):
    url: str
    api_key: str | None = None


class Contexts(msgspec.Struct):
    """The content of the file. ``current`` is the context that commands use without an option."""

    current: str | None = None
    servers: dict[str, NamedServer] = {}

    def get(self, name: str) -> NamedServer:
        """Raises CommandFailed."""
        if name not in self.servers:
            raise CommandFailed(
                f"context {name!r} not found; list the names with `strandline context ls`", Exit.NOT_FOUND
            )
        return self.servers[name]


def contexts_path() -> Path:
    directory = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(directory) / "strandline" / "contexts.json"


def load_contexts() -> Contexts:
    """The contexts of this user; none if there is no file. Raises CommandFailed if the file cannot be used."""
    path = contexts_path()
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            contexts = msgspec.json.decode(file.read(), type=Contexts)
    except FileNotFoundError:
        return Contexts()
    except OSError as error:
        raise CommandFailed(f"cannot read {path}: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CommandFailed(f"{path} is not a file of contexts ({error}); correct or delete it") from None
    if mode & 0o077 and any(server.api_key for server in contexts.servers.values()):
        say(f"warning: other users may read the API keys in {path}; run `chmod 600 {path}`")
    return contexts


def save_contexts(contexts: Contexts) -> None:
    """Replace the file in one step. Raises CommandFailed."""
    path = contexts_path()
    new = path.with_suffix(f".{os.getpid()}.new")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE), "wb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(contexts)) + b"\n")
            new.replace(path)
        finally:
            new.unlink(missing_ok=True)
    except OSError as error:
        raise CommandFailed(f"cannot write {path}: {error.strerror}") from None


def complete_context(incomplete: str) -> list[str]:
    """Names of contexts that start with this, for the shell."""
    try:
        return [name for name in sorted(load_contexts().servers) if name.startswith(incomplete)]
    except CommandFailed:
        return []
