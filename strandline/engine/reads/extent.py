"""How far the logs of an engine reach, in a few numbers: for those who follow it from afar and want to know whether
there is anything new. Looks at nothing but memory, and holds no lock meanwhile."""

from __future__ import annotations

from typing import NamedTuple

from strandline.engine.engine import Engine

#: Logs of these names are kept on the side.
_ON_THE_SIDE = "__"
_ERASURES = "__erasures__"


class Reach(NamedTuple):
    """Comparable with what the same engine said before. ``records`` and ``erasures`` mean the same after a restart."""

    #: The seqs handed out, over all logs that a restart brings back.
    records: int = 0
    #: The head of the log of erasures.
    erasures: int = 0
    #: Another number when the schema registry of any log is another.
    registries: int = 0
    #: Bytes written to the journal since the engine was opened.
    written: int = 0


def reach_of(engine: Engine) -> Reach:
    """Its cost is that of the number of logs. A log that grows meanwhile counts as before or as after."""
    written = engine.journal.written
    records = registries = 0
    for book in list(engine.by_epoch.values()):
        if book.name.startswith(_ON_THE_SIDE) or book.config.durability == "ephemeral":
            continue
        records += book.head
        if book.notes is not None:
            registry = book.notes.packed.get("registry")
            if registry is not None:
                # The hash of bytes is computed once for each of them.
                registries ^= hash((book.epoch, registry))
    erasures = engine.find(_ERASURES)
    return Reach(records, 0 if erasures is None else erasures.head, registries, written)
