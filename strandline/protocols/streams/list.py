"""GET /v1/streams: the streams by name, a page at a time."""

from __future__ import annotations

import asyncio

from msgspec import UNSET, UnsetType

from strandline.engine.errors import UnknownLog
from strandline.engine.reads.status import cold_through, sealed_through
from strandline.protocols.streams import offsets
from strandline.protocols.streams.context import StreamsContext
from strandline.protocols.streams.grammar import clamped, iso
from strandline.protocols.streams.replies import json_reply
from strandline.protocols.streams.stream import Stream
from strandline.protocols.streams.wire.inspection import Observability, RequestStreams, StreamRow
from strandline.schema.profiles import Evlog, ProfileKind
from strandline.service.access import Access
from strandline.service.http import Call, Reply

DEFAULT_LIMIT = 100
MAX_LIMIT = 1000
#: More streams than a server can have.
MAX_OFFSET = 10**15
#: How many streams are described before other work gets its turn: about a millisecond.
SLICE = 200


class StreamLists:
    def __init__(self, context: StreamsContext) -> None:
        self._context = context

    async def get(self, call: Call) -> Reply:
        """GET /v1/streams. ``offset`` counts streams; ``after`` continues after a name, even if streams come and go."""
        query = call.query
        limit = clamped("limit", query.get("limit", str(DEFAULT_LIMIT)), MAX_LIMIT)
        position = clamped("offset", query.get("offset", "0"), MAX_OFFSET)
        streams = self._context.streams
        # Expired streams are not counted.
        streams.catalog.sweep()
        names = streams.catalog.names(
            call.access, limit, prefix=query.get("prefix", ""), after=query.get("after", ""), position=position
        )
        found: list[StreamRow] = []
        for at, name in enumerate(names):
            if at % SLICE == SLICE - 1:
                await asyncio.sleep(0)
            stream = streams.find(name)
            if stream is None or stream.gone:
                continue
            try:
                found.append(describe(stream, call.access))
            except UnknownLog:  # removed in the meantime
                continue
        return json_reply(found)


def describe(stream: Stream, access: Access) -> StreamRow:
    """A stream as a row of the list. Positions are sequence numbers: of the next record, of the last sealed record, and
    of the last record in the cold tier."""
    log = stream.log
    sealed = sealed_through(log)
    kind, observability = profile_of(stream, access)
    return StreamRow(
        name=stream.name,
        created_at=iso(log.created_at),
        expires_at=time(stream.expires_at),
        epoch=offsets.EPOCH,
        next_offset=str(log.head),
        sealed_through=str(sealed - 1),
        uploaded_through=str(cold_through(log, sealed) - 1),
        profile=kind,
        observability=observability,
    )


def profile_of(stream: Stream, access: Access) -> tuple[ProfileKind, Observability | UnsetType]:
    """The kind of the profile, and the pair of streams that it names, unless the key may not touch the other one."""
    if stream.is_plain:
        return "generic", UNSET
    profile = stream.profile
    if not profile.named_streams or not all(map(access.may_touch, profile.named_streams)):
        return profile.kind, UNSET
    [other] = profile.named_streams
    events, traces = (stream.name, other) if isinstance(profile, Evlog) else (other, stream.name)
    return profile.kind, Observability(RequestStreams(events_stream=events, traces_stream=traces))


def time(milliseconds: int | None) -> str | None:
    """A time in the format of the protocol; null if there is none or it is unknown."""
    return iso(milliseconds) if milliseconds else None
