"""The test bed of collections."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from support.collections_in_process import MakeStand, Stand
from support.server_process import ServerProcess, Share

from strandline.collections import Collection

#: What the shared servers have: everything below is of tests that run over HTTP.
SERVED: dict[str, Any] = {
    "version": 1,
    "collections": [
        {
            "name": "open",
            "storagePath": "open/{id}",
            "readRoles": ["public"],
            "writeRoles": ["public"],
            "encryption": "none",
            "maxBodyBytes": 65536,
            "listable": True,
            "appendOnly": {"type": "by_timestamp", "requireAuthorSignature": False},
        },
        {
            "name": "signed",
            "storagePath": "signed/{id}",
            "readRoles": ["cap:read:signed", "cap:read:*"],
            "writeRoles": ["cap:write:signed", "cap:write:*"],
            "encryption": "none",
            "maxBodyBytes": 65536,
            "appendOnly": True,
        },
        {
            "name": "own",
            "storagePath": "users/{identity}/log",
            "readRoles": ["self"],
            "writeRoles": ["self"],
            "encryption": "delegated",
            "maxBodyBytes": 65536,
            "appendOnly": True,
        },
        {
            "name": "small",
            "storagePath": "small/{id}",
            "readRoles": ["public"],
            "writeRoles": ["public"],
            "encryption": "none",
            "maxBodyBytes": 200,
            "appendOnly": {"requireAuthorSignature": False},
        },
        {
            "name": "told",
            "storagePath": "told/{id}",
            "readRoles": ["public"],
            "writeRoles": ["public"],
            "encryption": "none",
            "maxBodyBytes": 65536,
            "appendOnly": {"requireAuthorSignature": False},
            "queue": {"topic": "told-jobs", "includeBody": True, "includeParams": True},
        },
    ],
    "namespaces": {
        "team": {
            "collections": [
                {
                    "name": "chat",
                    "storagePath": "chat/{room}",
                    "readRoles": ["public"],
                    "writeRoles": ["cap:write:*"],
                    "encryption": "none",
                    "maxBodyBytes": 65536,
                    "appendOnly": True,
                }
            ]
        }
    },
}


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[MakeStand]:
    """Make a server without sockets: ``stand(collection, …)``; a further one gets another directory, unless told
    ``path``."""
    numbers = count()

    def make(*collections: Collection, path: Path | None = None, **options: Any) -> Stand:
        made = Stand(path or tmp_path / f"data-{next(numbers)}", *collections, **options)
        endings.enter_context(made)
        return made

    with ExitStack() as endings:
        yield make


def config_file(path: Path, config: dict[str, Any] = SERVED) -> Path:
    path.write_text(json.dumps(config))
    return path


@pytest.fixture(scope="session")
def served(lane: str, share: Share, memory: Path) -> ServerProcess:
    """A real server with the collections above."""
    settings = {"config_file": str(config_file(memory / f"collections-{lane}.json")), "config_endpoint": "public"}
    return share(ServerProcess(memory / f"collections-{lane}", fast_lane=lane == "fast", settings=settings))


_numbers = count(1)


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return f"d{next(_numbers)}"
