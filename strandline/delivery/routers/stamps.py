"""What a stamped copy says of where it came from, in its meta."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Raw

from strandline.engine import Log

#: Reserved in the meta of every stamped copy.
STAMP = "_topics_router"
#: Where the meta of the original is if it cannot take the stamp.
ORIGINAL = "_topics_original_meta"
#: A meta with so many keys is full.
MAX_KEYS = 64

_object = msgspec.json.Decoder(dict[str, Raw])


class Stamper:
    """Makes the metas of the copies that one router makes."""

    __slots__ = ("_template",)

    def __init__(self, router: str, source: Log) -> None:
        # The epoch tells a log apart from all others of the directory, so it is both: which log, and which life of it.
        epoch = source.epoch
        key = msgspec.json.encode(f"router:{router}:{epoch}:{epoch}:")[:-1]
        parts = (key, msgspec.json.encode(router), msgspec.json.encode(source.name), epoch, epoch)
        filled = (
            b'{"idempotency_key":%b\0","router":%b,"source_topic":%b,"source_topic_id":%d,"source_epoch":%d,'
            b'"source_seq":\0}' % parts
        )
        self._template = filled.split(b"\0")

    def metas(self, seqs: Sequence[int], metas: Sequence[bytes | None]) -> list[bytes]:
        """The metas of the copies of these records."""
        start, middle, end = self._template
        stamped: list[bytes] = []
        for seq, meta in zip(seqs, metas, strict=True):
            number = b"%d" % seq
            stamp = start + number + middle + number + end
            stamped.append(b'{"_topics_router":' + stamp + b"}" if meta is None else stamp_meta(meta, stamp))
        return stamped


def stamp_meta(meta: bytes, stamp: bytes) -> bytes:
    """The meta with the stamp in it; around it, when the meta is no object or has no place for one more key."""
    try:
        known = _object.decode(meta)
    except msgspec.MsgspecError:
        known = None
    if known is None or (STAMP not in known and len(known) >= MAX_KEYS):
        known = {ORIGINAL: Raw(meta)}
    # The stamp of a router further up is replaced: it is about another copy.
    known[STAMP] = Raw(stamp)
    return msgspec.json.encode(known)
