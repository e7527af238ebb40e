"""Modules that are imported when they are first used, because most processes never use them.

A module that takes long to import, or much memory, is declared like this::

    if TYPE_CHECKING:
        import httpx
    else:
        httpx = LateModule("httpx")

:mod:`strandline.arrow` declares Arrow.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


class LateModule:
    """Stands for a module, and imports it when an attribute is first read. ``imported`` is called after that."""

    def __init__(self, name: str, imported: Callable[[], None] | None = None) -> None:
        self._name = name
        self._imported = imported

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        module = import_module(self._name)
        if self._imported is not None:
            imported, self._imported = self._imported, None
            imported()
        value = getattr(module, attribute) if hasattr(module, attribute) else import_module(f"{self._name}.{attribute}")
        # The next use finds it without this method.
        setattr(self, attribute, value)
        return value

    def __repr__(self) -> str:
        return f"LateModule({self._name!r})"


def late_names(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package whose names are imported when they are used. ``modules`` has the names of each
    module, with spaces between them."""
    module_of = {name: module for module, names in modules.items() for name in names.split()}

    def find(name: str) -> Any:
        module = module_of.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{module}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return find


def is_loaded(name: str) -> bool:
    """Whether a module has been imported."""
    return name in sys.modules


def is_raised_by(module: str, name: str, error: Exception) -> bool:
    """Whether an error is of the class ``name`` of a module. Does not import the module: if it is not loaded, none of
    its errors can have been raised."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(error, getattr(loaded, name))


class Without:
    """Makes a module appear not to be installed while this is in ``sys.meta_path``. It does not inherit from
    ``importlib.abc.MetaPathFinder``, whose import takes as long as a tenth of a short command."""

    def __init__(self, missing: str) -> None:
        self._missing = missing

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> None:
        if name == self._missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
