"""Starts the server from a program that declares tables and collections."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from strandline.collections import Collection, Namespace, Roles
from strandline.protocols.tables.users import Identify
from strandline.server.declarations import gather
from strandline.server.run import run
from strandline.server.settings_sources import load
from strandline.tables import Hooks, TableDeclaration


def serve(
    *,
    tables: Iterable[TableDeclaration] = (),
    collections: Iterable[Collection | Namespace | Roles] = (),
    identify: Identify | None = None,
    hooks: Hooks | None = None,
    host: str | None = None,
    port: int | None = None,
    data: str | os.PathLike[str] | None = None,
    port_file: str | os.PathLike[str] | None = None,
    config: str | os.PathLike[str] | None = None,
) -> int:
    """Serve until a signal stops the server (Ctrl-C, SIGTERM). Returns the exit code: 0, or 1 if the server could not
    run. Call it on the main thread, which receives the signals.

    The settings come from the file ``config``, then from environment variables, then from the arguments, as with
    ``strandline serve``; later ones take precedence. Raises :class:`~strandline.server.settings.BadSettings` if they
    are not valid. The pipeline is not started: run it with ``strandline pipeline run``.
    """
    declared = gather([*tables, *collections], identify, hooks)
    options = {
        "--host": host,
        "--port": port,
        "--data": None if data is None else os.fspath(data),
        "--port-file": None if port_file is None else os.fspath(port_file),
    }
    settings = load(
        None if config is None else Path(config),
        os.environ,
        {name: value for name, value in options.items() if value is not None},
    )
    for warning in settings.warnings:
        print(f"strandline: warning: {warning}", file=sys.stderr)
    return run(settings, declared=declared)
