"""The history that a process of Spark reads from, kept open for the queries that follow.

Through a directory, a history is a view: the journal is replayed for it and its files are held. So one view serves
until the directory has changed. Whoever plans a query does not know when its tasks are done, or whether they run once
or many times; so the last few views of a process are kept, and a task that finds its files gone takes a view of its
own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from strandline.engine.journal.file import DIRECTORY as JOURNAL
from strandline.engine.state.checkpoints import MANIFEST
from strandline.history.source import History, open_history
from strandline.pipeline.source.options import Place

#: A view holds files that housekeeping would remove, and up to a journal's worth of sealed records.
KEPT_VIEWS = 4

_lock = threading.Lock()
_kept: dict[str, list[tuple[Any, History]]] = {}


def opened(place: Place) -> History:
    """The records that were acknowledged when this was called. Not to be closed: others may have the same one."""
    if place.url:
        return fresh(place)
    with _lock:
        views = _kept.setdefault(repr(place), [])
        now = fingerprint(place.path)
        if views and views[-1][0] == now:
            return views[-1][1]
        views.append((now, fresh(place)))
        while len(views) > KEPT_VIEWS:
            views.pop(0)[1].close()
        return views[-1][1]


def fresh(place: Place) -> History:
    """One that belongs to the caller."""
    return open_history(
        path=place.path, url=place.url, key=place.key, cold_url=place.cold, cold_options=place.cold_options
    )


@contextmanager
def borrowed(place: Place) -> Iterator[History]:
    """One for a short while."""
    history = fresh(place)
    try:
        yield history
    finally:
        history.close()


def fingerprint(path: str) -> Any:
    """Something that changes when anything is written to the data directory. It is to be taken before the view: what
    is written in between then shows as a change, and never the other way round."""
    found = []
    for name in (MANIFEST, JOURNAL):
        with_name = os.path.join(path, name)
        entries = sorted(os.listdir(with_name)) if os.path.isdir(with_name) else [""]
        for entry in entries:
            try:
                status = os.stat(os.path.join(with_name, entry) if entry else with_name)
            except FileNotFoundError:
                continue
            found.append((name, entry, status.st_ino, status.st_size, status.st_mtime_ns))
    return found
