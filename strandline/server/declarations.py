"""Declarations: the tables and collections that a program describes in Python, found in a file or a module.

The file is imported once, when the server starts. All its module-level names count, also imported ones: every table,
every collection, a function ``identify`` that identifies the user of a request, and ``hooks`` that apply to all tables.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from strandline.collections.declaration import Declared as DeclaredCollections
from strandline.collections.errors import BadCollections
from strandline.engine.process import import_from
from strandline.protocols.tables.users import Identify
from strandline.server.settings import BadSettings
from strandline.tables import BadDeclaration, Hooks, TableDeclaration

#: Names with a special meaning in a file of declarations.
IDENTIFY, HOOKS = "identify", "hooks"


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """The tables and collections that the server serves."""

    tables: tuple[TableDeclaration, ...] = ()
    collections: DeclaredCollections = DeclaredCollections()
    #: Returns the user of a request to a table from its headers; None: the API key identifies the user.
    identify: Identify | None = None
    #: They run before the hooks of a table.
    hooks: Hooks | None = None

    @property
    def is_nothing(self) -> bool:
        return not self.tables and self.collections == DeclaredCollections()


NOTHING = Declared()


def load(source: str) -> Declared:
    """Import ``polls.py`` or ``package.module`` and collect its declarations. Raises BadSettings."""
    if not source:
        return NOTHING
    names = vars(_import(source))
    declared = gather(list(names.values()), names.get(IDENTIFY), names.get(HOOKS), f"{source}: ")
    if declared.is_nothing:
        raise BadSettings(f"{source} declares nothing; expected at least one table (make_log) or Collection")
    return declared


def gather(values: list[Any], identify: Any = None, hooks: Any = None, where: str = "") -> Declared:
    """The declarations among the values. Raises BadSettings; ``where`` is the start of its message."""
    if identify is not None and not callable(identify):
        raise BadSettings(
            f"{where}{IDENTIFY} is {type(identify).__name__}; expected a function from headers to a user or None"
        )
    if hooks is not None and not isinstance(hooks, Hooks | ModuleType):
        raise BadSettings(f"{where}{HOOKS} is {type(hooks).__name__}; expected Hooks(…)")
    try:
        collections = DeclaredCollections.of(values)
    except BadCollections as error:
        raise BadSettings(f"{where}{error}") from None
    # A value may have several names.
    tables = tuple({id(value): value for value in values if isinstance(value, TableDeclaration)}.values())
    names = [table.name for table in tables]
    for table in tables:
        if names.count(table.name) > 1:
            raise BadSettings(f"{where}two tables have the name {table.name!r}; give each table its own name")
        if isinstance(table.parent, TableDeclaration) and table.parent not in tables:
            raise BadSettings(
                f"{where}table {table.name!r} has the parent {table.parent.name!r}, which is not "
                "declared in this file; declare or import it"
            )
    return Declared(
        tables=tables, collections=collections, identify=identify, hooks=hooks if isinstance(hooks, Hooks) else None
    )


def _import(source: str) -> ModuleType:
    try:
        if source.endswith(".py"):
            return _import_file(Path(source))
        # Modules of the working directory can be named, as with `python -m`.
        import_from(os.getcwd())
        return importlib.import_module(source)
    except BadSettings:
        raise
    except BadDeclaration as error:
        raise BadSettings(f"{source}: {error}") from error
    except ModuleNotFoundError as error:
        if error.name is not None and (source == error.name or source.startswith(error.name + ".")):
            raise BadSettings(f"module {source} not found; to name a file, add .py") from None
        raise BadSettings(f"cannot import {source}: {error}") from error
    except Exception as error:
        raise BadSettings(f"cannot import {source}: {type(error).__name__}: {error}") from error


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise BadSettings(f"file {path} not found; expected a Python file with declarations")
    # The name of the file may be the name of a module that is already imported.
    name = f"strandline_declarations_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise BadSettings(f"cannot import {path}")
    module = importlib.util.module_from_spec(spec)
    # The file can import its neighbours, as if it were run.
    import_from(str(path.resolve().parent))
    # Types are looked up by the name of their module.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
