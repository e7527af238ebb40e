"""Records as JSON. ``data`` and ``meta`` are the bytes that came in; nothing is parsed and nothing is built."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import msgspec

from strandline.engine import Page
from strandline.engine.record import Tombstone


@lru_cache(maxsize=4096)
def quote(text: str) -> bytes:
    """A string as JSON."""
    return msgspec.json.encode(text)


def render_records(page: Page, *, tags: bool, meta: bool, data: bool = True) -> bytes:
    """The records of a page, as a JSON array without its brackets."""
    with_tags = tags and not _all_none(page.keys)
    with_nodes = not _all_none(page.nodes)
    with_metas = meta and not _all_none(page.metas)
    if not (with_tags or with_nodes or with_metas):
        return _render_plain(page, data)
    parts: list[bytes] = []
    columns = zip(page.seqs, page.ts, page.nodes, page.keys, page.data, page.metas, strict=True)
    for seq, ts, node, key, payload, extra in columns:
        record = b'{"$seq":%d,"$ts":%d' % (seq, ts)
        if node is not None:
            record += b',"$node":' + quote(node)
        if with_tags and key is not None:
            record += b',"$tag":' + quote(key)
        if data:
            record += b',"data":' + payload
        if with_metas and extra is not None:
            record += b',"meta":' + extra
        parts.append(record + b"}")
    return b",".join(parts)


def _render_plain(page: Page, data: bool) -> bytes:
    """Records that are nothing but data, all of them formatted in one call: half the time of one call each."""
    count = len(page.seqs)
    if not count:
        return b""
    width = 3 if data else 2
    values: list[int | bytes] = [0] * (width * count)
    values[0::width] = page.seqs
    values[1::width] = page.ts
    template = b'{"$seq":%d,"$ts":%d}'
    if data:
        values[2::width] = page.data
        template = b'{"$seq":%d,"$ts":%d,"data":%b}'
    return (template + (b"," + template) * (count - 1)) % tuple(values)


def _all_none(column: list[object] | list[str | None] | list[bytes | None]) -> bool:
    return column.count(None) == len(column)


def tombstone_json(tombstone: Tombstone) -> bytes:
    return msgspec.json.encode(
        {
            "gap_from": tombstone.gap_from,
            "gap_to": tombstone.gap_to,
            "reason": tombstone.reason,
            "missed_estimate": tombstone.missed,
            "earliest_seq": tombstone.earliest,
            "head_seq": tombstone.head,
        }
    )


def number_list(numbers: Iterable[int]) -> bytes:
    return ",".join(map(str, numbers)).encode()
