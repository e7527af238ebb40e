"""Declarations: the tables and collections that a program describes in Python, found in a file or a module.

The file is imported once, when the server starts. Whatever it binds to a name of its own counts, also what it imported
from elsewhere: every table, every collection, a function ``identify`` that says who a request is from, and ``hooks``
that are for all tables.
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

#: Names in a file of declarations that mean something by themselves.
IDENTIFY, HOOKS = "identify", "hooks"


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be served beside topics and streams."""

    tables: tuple[TableDeclaration, ...] = ()
    collections: DeclaredCollections = DeclaredCollections()
    #: Says who a request to a table is from by its headers; None: API keys say so.
    identify: Identify | None = None
    #: Run before those of the tables themselves.
    hooks: Hooks | None = None

    @property
    def is_nothing(self) -> bool:
        return not self.tables and self.collections == DeclaredCollections()


NOTHING = Declared()


def load(source: str) -> Declared:
    """Import ``polls.py`` or ``package.module`` and gather what it declares; raises BadSettings if it cannot be."""
    if not source:
        return NOTHING
    names = vars(_import(source))
    declared = gather(list(names.values()), names.get(IDENTIFY), names.get(HOOKS), f"{source}: ")
    if declared.is_nothing:
        raise BadSettings(f"{source} declares nothing: neither a table (make_log) nor a Collection")
    return declared


def gather(values: list[Any], identify: Any = None, hooks: Any = None, where: str = "") -> Declared:
    """What there is for us among the values. Raises BadSettings; ``where`` is the beginning of its message."""
    if identify is not None and not callable(identify):
        raise BadSettings(f"{where}{IDENTIFY} must be a function from headers to a user or None")
    if hooks is not None and not isinstance(hooks, Hooks | ModuleType):
        raise BadSettings(f"{where}{HOOKS} must be Hooks(…)")
    try:
        collections = DeclaredCollections.of(values)
    except BadCollections as error:
        raise BadSettings(f"{where}{error}") from None
    # A value may have several names.
    tables = tuple({id(value): value for value in values if isinstance(value, TableDeclaration)}.values())
    names = [table.name for table in tables]
    for table in tables:
        if names.count(table.name) > 1:
            raise BadSettings(f"{where}two tables are called {table.name!r}")
        if isinstance(table.parent, TableDeclaration) and table.parent not in tables:
            raise BadSettings(f"{where}the table {table.name!r} needs its parent {table.parent.name!r} beside it")
    return Declared(
        tables=tables, collections=collections, identify=identify, hooks=hooks if isinstance(hooks, Hooks) else None
    )


def _import(source: str) -> ModuleType:
    try:
        if source.endswith(".py"):
            return _import_file(Path(source))
        # As for `python -m`: what is in the directory where the command was given can be named.
        import_from(os.getcwd())
        return importlib.import_module(source)
    except BadSettings:
        raise
    except BadDeclaration as error:
        raise BadSettings(f"{source}: {error}") from error
    except ModuleNotFoundError as error:
        if error.name is not None and (source == error.name or source.startswith(error.name + ".")):
            raise BadSettings(f"there is no module {source}; a file is named with its ending, .py") from None
        raise BadSettings(f"{source} cannot be imported: {error}") from error
    except Exception as error:
        raise BadSettings(f"{source} cannot be imported: {type(error).__name__}: {error}") from error


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise BadSettings(f"there is no file {path}")
    # Its own name might be that of something which is imported already.
    name = f"strandline_declarations_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise BadSettings(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    # Files beside it can be imported, as if it were run.
    import_from(str(path.resolve().parent))
    # Types are looked up by the name of their module.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
