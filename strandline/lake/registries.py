"""The schema registries of logs, stored in the lake, so that its records can be decoded without a server and without
the data directory.

There is one file per log under ``registries/``. Its name identifies the log, the time of writing and the contents, so
that the list of names shows what has changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from hashlib import sha256
from typing import NamedTuple

import msgspec
import xxhash

from strandline.lake.location import Lake

FOLDER = "registries"


class RegistryLayer(msgspec.Struct, frozen=True):
    """A range of seqs of a log whose records have this epoch in the lake. The last layer has no end."""

    epoch: int
    first: int
    last: int | None


class KeptRegistry(msgspec.Struct, frozen=True):
    """The lake's information about a log with a registry. ``layers`` has more than one entry for a fork, whose first
    records belong to another log."""

    log: str
    epoch: int
    layers: list[RegistryLayer]
    registry: msgspec.Raw


class _Name(NamedTuple):
    """The parts of a file name."""

    folder: str
    epoch: int
    written_ms: int
    digest: str

    @classmethod
    def parse(cls, name: str) -> _Name | None:
        folder, _, file = name.rpartition("/")
        parts = file.removesuffix(".json").split("-")
        if len(parts) != 3 or not (parts[0].isdigit() and parts[1].isdigit()):
            return None
        return cls(folder, int(parts[0]), int(parts[1]), parts[2])

    def __str__(self) -> str:
        return f"{self.folder}/{self.epoch}-{self.written_ms}-{self.digest}.json"


def keep(lake: Lake, registries: Iterable[KeptRegistry], now_ms: int, logs: Collection[str] | None = None) -> None:
    """Store the registries of all logs that have one, or of these ``logs``, and remove all others of them. Unchanged
    registries are not written again."""
    kept: dict[tuple[str, int, str], str] = {}
    superfluous = set()
    folders = [FOLDER] if logs is None else [_folder(log) for log in logs]
    for name in (name for folder in folders for name in lake.names(f"{folder}/")):
        parsed = _Name.parse(name)
        superfluous.add(name)
        if parsed is not None:
            kept[parsed.folder, parsed.epoch, parsed.digest] = name
    for registry in registries:
        data = msgspec.json.encode(registry)
        place = _folder(registry.log), registry.epoch, xxhash.xxh3_64_hexdigest(data)
        if place in kept:
            superfluous.discard(kept[place])
        else:
            lake.write(str(_Name(place[0], place[1], now_ms, place[2])), data)
    lake.remove(superfluous)


def find(lake: Lake, log: str) -> KeptRegistry | None:
    """Return the registry of the log that has this name now, or had it last; None if the lake has none."""
    for _ in range(2):
        parsed = [name for each in lake.names(f"{_folder(log)}/") if (name := _Name.parse(each)) is not None]
        if not parsed:
            return None
        data = lake.read(str(max(parsed, key=lambda name: (name.epoch, name.written_ms))))
        if data is not None:  # None: a newer file has replaced it
            return msgspec.json.decode(data, type=KeptRegistry)
    return None


def _folder(log: str) -> str:
    """Return the folder of a log. Log names may be longer than file names and contain any character."""
    return f"{FOLDER}/{sha256(log.encode()).hexdigest()[:32]}"
