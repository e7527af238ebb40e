"""A project: a directory with ``pipeline.toml`` and the files that declare tables."""

from __future__ import annotations

import glob
import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from strandline.nearest_name import with_nearest

NAME = "pipeline.toml"
#: The files that declare tables, by their extension.
SUFFIXES = (".py", ".sql")
#: A name is also the name of a directory, and of a table in SQL without quotes.
TABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
#: More would not fit into a status that is written every few seconds.
MAX_TABLES = 1000


class BadProject(Exception):
    """A project that cannot be run. The message says which file is wrong, and why; nothing was started."""


class ProjectSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The members of ``pipeline.toml``."""

    name: str = ""
    #: Patterns of the files that declare tables, relative to the project.
    libraries: tuple[str, ...] = ("tables/**",)
    #: Spark's configuration for the queries of the project.
    configuration: dict[str, str] = {}
    #: The time between two batches of a streaming query.
    trigger_seconds: float = 1.0
    #: The time between two refreshes of a view that is computed as a whole.
    refresh_seconds: float = 60.0
    #: The maximum number of records that a batch reads from a log.
    rows_per_batch: int = 200_000
    #: Whether a query stops if records were lost before it read them, by retention or with their log.
    fail_on_data_loss: bool = True


class Project(msgspec.Struct, frozen=True):
    directory: Path
    settings: ProjectSettings

    @property
    def name(self) -> str:
        return self.settings.name or self.directory.name

    def files(self) -> list[Path]:
        """The files that declare tables, in the order of their names. Raises BadProject."""
        found: set[Path] = set()
        for pattern in self.settings.libraries:
            for path in self.directory.glob(_pattern(pattern)):
                if path.is_file() and "__pycache__" not in path.parts:
                    found.add(path)
        for path in found:
            if path.suffix not in SUFFIXES:
                raise BadProject(f"{path}: expected a file that ends in .sql or .py; move other files elsewhere")
        return sorted(found)

    def fingerprint(self) -> tuple[tuple[str, int, int], ...]:
        """Changes when a file of the project changes."""
        try:
            paths = [self.directory / NAME, *self.files()]
            stats = [(str(path), path.stat()) for path in paths]
        except (OSError, BadProject):
            return ()
        return tuple((path, stat.st_mtime_ns, stat.st_size) for path, stat in stats)


def _pattern(pattern: str) -> str:
    """As Spark does it: the name of a file, or a directory followed by ``/**``."""
    if not glob.has_magic(pattern):
        return pattern
    if pattern.endswith("/**") and not glob.has_magic(pattern[:-3]):
        return f"{pattern}/*"
    raise BadProject(f"invalid pattern {pattern!r} in libraries: expected a file, or a directory followed by /**")


def load_project(directory: Path) -> Project:
    """Raises BadProject."""
    path = directory / NAME
    try:
        text = path.read_text()
    except FileNotFoundError:
        raise BadProject(f"no {NAME} in {directory}: create a project with `strandline pipeline init`") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadProject(f"cannot read {path}: {error}") from None
    try:
        document: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadProject(f"{path}: invalid TOML: {error}") from None
    try:
        settings = msgspec.convert(document, ProjectSettings)
    except msgspec.ValidationError as error:
        raise BadProject(f"{path}: {with_nearest(error, ProjectSettings)}") from None
    for name, least in (("trigger_seconds", 0.0), ("refresh_seconds", 1.0), ("rows_per_batch", 1)):
        if not least <= getattr(settings, name) <= 1e9:
            raise BadProject(f"{path}: {name} must be at least {least:g}, got {getattr(settings, name):g}")
    for pattern in settings.libraries:
        _pattern(pattern)
    return Project(directory.resolve(), settings)
