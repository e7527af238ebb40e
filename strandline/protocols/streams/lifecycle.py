"""PUT and DELETE: creating a stream, with its first records or as a fork of another stream; and deleting it."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import quote

from strandline.engine import Batch, Log, Page
from strandline.engine.ownership import CLOSED as CLOSED_NOTE
from strandline.engine.ownership import JSON, PROFILE, REGISTRY, media_type
from strandline.engine.record import is_internal
from strandline.protocols.streams import offsets
from strandline.protocols.streams.append import routing_key
from strandline.protocols.streams.context import StreamsContext
from strandline.protocols.streams.entries import byte_batch, checked_batch, json_batch
from strandline.protocols.streams.errors import bad_request, conflict, not_found
from strandline.protocols.streams.grammar import is_true, number, time_ms, ttl_seconds, unescape
from strandline.protocols.streams.replies import CLOSED, kept, next_offset, origin
from strandline.protocols.streams.stream import ForkTraits, Stream, StreamTraits
from strandline.protocols.streams.streams import check_name
from strandline.schema.profiles import GENERIC, Profile
from strandline.schema.registry import Registry
from strandline.service.access import Access
from strandline.service.admission import Replying, reply_of
from strandline.service.http import NO_STORE, Call, Head, Reply
from strandline.service.problems import FORBIDDEN, Headers, Refusal, body_too_large, may_not_touch

PREFIX = "/v1/stream/"
#: The other form of the path of a stream, which some clients use.
ALIAS = "/v1/streams/"
OCTETS = "application/octet-stream"
_CONTENT_TYPE = re.compile(r"[!-~]+/[!-~]+[ -~\t]*", re.ASCII)
#: The start of a stream, as written by another server.
_FOREIGN_START = "0000000000000000_0000000000000000"


class ForkHead(NamedTuple):
    """Where a fork begins. ``offset`` is a seq; None: the end of the source."""

    source: str
    offset: int | None
    sub: int


class CreateHead(NamedTuple):
    """The headers of a PUT."""

    content_type: str | None
    ttl_seconds: int | None
    expires_at: int | None
    closed: bool
    #: None: not given.
    compact: bool | None
    retain_until_in_lake: bool | None
    key: str | None
    fork: ForkHead | None

    @classmethod
    def of(cls, head: Head) -> CreateHead:
        headers = head.headers
        ttl, expires = headers.get(b"stream-ttl"), headers.get(b"stream-expires-at")
        if ttl is not None and expires is not None:
            raise bad_request("Stream-TTL cannot be combined with Stream-Expires-At")
        return cls(
            _content_type(head),
            None if ttl is None else ttl_seconds(ttl.decode("latin-1")),
            None if expires is None else time_ms("Stream-Expires-At", expires.decode("latin-1")),
            is_true(headers.get(b"stream-closed")),
            _flag(head, "Stream-Compact"),
            _flag(head, "Stream-Retain-Until-In-Lake"),
            routing_key(head),
            _fork(head),
        )


def _content_type(head: Head) -> str | None:
    value = head.headers.get(b"content-type", b"").decode("latin-1").strip()
    if not value:
        return None
    if _CONTENT_TYPE.fullmatch(value) is None:
        raise bad_request(f"{value!r} is not a content type")
    return value


def _flag(head: Head, name: str) -> bool | None:
    value = head.headers.get(name.lower().encode())
    if value is None:
        return None
    text = value.decode("latin-1").strip().lower()
    if text not in ("true", "false"):
        raise bad_request(f"{name} must be true or false, not {text!r}")
    return text == "true"


def _fork(head: Head) -> ForkHead | None:
    headers = head.headers
    source = headers.get(b"stream-forked-from")
    offset = headers.get(b"stream-fork-offset")
    sub = headers.get(b"stream-fork-sub-offset")
    if source is None:
        if offset is not None or sub is not None:
            raise bad_request("Stream-Fork-Offset and Stream-Fork-Sub-Offset require Stream-Forked-From")
        return None
    count = 0 if sub is None else number("Stream-Fork-Sub-Offset", sub.decode("latin-1"))
    if count and offset is None:
        raise bad_request("Stream-Fork-Sub-Offset requires Stream-Fork-Offset")
    return ForkHead(_source_name(source), None if offset is None else _fork_offset(offset), count)


def _source_name(value: bytes) -> str:
    path = value.decode("latin-1").strip()
    for prefix in (PREFIX, ALIAS):
        if path.startswith(prefix):
            return check_name(unescape(path[len(prefix) :].rstrip("/")))
    raise bad_request(f"Stream-Forked-From must be the path of a stream, {PREFIX}…")


def _fork_offset(value: bytes) -> int | None:
    text = value.decode("latin-1").strip()
    if text in (offsets.START, _FOREIGN_START):
        return 0
    if text == offsets.NOW:
        return None
    seq = offsets.decode(text)
    if seq is None:
        raise bad_request(f"Stream-Fork-Offset {text!r} is not a valid offset")
    return seq


class _Plan(NamedTuple):
    """A stream that is about to be created."""

    traits: StreamTraits
    compact: bool
    retain_until_in_lake: bool
    source: tuple[Log, int] | None = None
    notes: dict[str, object] | None = None
    #: The rules for the first records of a fork.
    registry: Registry | None = None
    profile: Profile = GENERIC
    #: The part of the source's next record that the fork begins with, and that record's key.
    prefix: bytes = b""
    prefix_key: str | None = None


class Lifecycle:
    def __init__(self, context: StreamsContext) -> None:
        self._context = context

    def put(self, call: Call) -> Replying:
        """PUT /v1/stream/{name}"""
        context = self._context
        context.check_path(call)
        name = check_name(call.param("name"))
        if is_internal(name):
            raise Refusal(FORBIDDEN, "only the server can create this stream")
        head = CreateHead.of(call.head)
        if len(call.body) > context.settings.max_append_bytes:
            raise body_too_large(context.settings.max_append_bytes)
        if head.fork is not None:
            _check_access(call.access, head.fork.source)
        return context.admission.write(lambda _: self._put(call, name, head))

    def _put(self, call: Call, name: str, head: CreateHead) -> Replying:
        context = self._context
        existing = context.streams.find(name)
        if existing is not None and existing.gone:
            context.kernel.catalog.sweep()
            existing = context.streams.find(name)
        if existing is not None:
            if existing.gone or not _matches(existing, head):
                raise conflict("a stream with this name and another configuration exists")
            return context.admission.after(existing.log.sync(), lambda _: _described(existing, 200))
        if head.fork is not None:
            return self._forked(call, name, head, head.fork)
        traits = StreamTraits(
            content_type=head.content_type or OCTETS,
            ttl_seconds=head.ttl_seconds,
            expires_at=head.expires_at,
        )
        return self._make(call, name, head, _Plan(traits, bool(head.compact), bool(head.retain_until_in_lake)))

    def _make(self, call: Call, name: str, head: CreateHead, plan: _Plan) -> Reply | Replying:
        """Everything but the body is checked."""
        context = self._context
        batch = self._batch(call.body, head, plan)
        notes = dict(plan.notes or {})
        if head.closed:
            notes[CLOSED_NOTE] = []
        stream, commit = context.streams.create(
            name,
            plan.traits,
            source=plan.source,
            notes=notes or None,
            batch=batch,
            compact=plan.compact,
            retain_until_in_lake=plan.retain_until_in_lake,
        )
        location = _location(call)
        warning = context.kernel.lake_warning() if plan.retain_until_in_lake else ""
        return context.after_append(commit, len(call.body), lambda _: _described(stream, 201, location, warning))

    def _batch(self, body: bytes, head: CreateHead, plan: _Plan) -> Batch | None:
        batch = None
        most = self._context.settings.max_append_records
        if body and media_type(plan.traits.content_type) == JSON:
            if plan.registry is not None:
                batch = checked_batch(body, head.key, most, plan.registry, plan.profile, self._context.hub.now())
            else:
                batch = json_batch(body, head.key, most)
        elif body:
            batch = byte_batch(body, head.key, plan.registry)
        if plan.prefix:
            if batch is None:
                return Batch.of(plan.prefix, plan.prefix_key)
            return Batch([plan.prefix, body], [plan.prefix_key, head.key])
        return batch

    def delete(self, call: Call) -> Replying:
        """DELETE /v1/stream/{name}. Deleting a stream again succeeds; deleting one that never existed does not."""
        context, streams = self._context, self._context.streams
        context.check_path(call)
        name = check_name(call.param("name"))
        if streams.find(name) is None and streams.was_deleted(name):
            return _deleted(None)
        stream = context.stream_to_change(call)
        return context.admission.after(streams.delete(stream, call.access), _deleted)

    # --- forks ---------------------------------------------------------------------------------------------------

    def _forked(self, call: Call, name: str, head: CreateHead, fork: ForkHead) -> Replying:
        source = self._context.streams.find(fork.source)
        if source is None:
            raise not_found(f"the stream to fork, {fork.source!r}, does not exist")
        if source.gone:
            raise conflict("the stream to fork was deleted")
        if head.content_type is not None and media_type(head.content_type) != source.media_type:
            raise conflict(f"the stream to fork holds {source.media_type}")
        through = source.log.head if fork.offset is None else fork.offset
        if through > source.log.head:
            raise bad_request("Stream-Fork-Offset is past the end of the stream to fork")
        if not fork.sub:
            return self._make(call, name, head, self._plan(head, fork, source, through, through))
        if source.is_json:
            if through + fork.sub > source.log.head:
                raise bad_request("Stream-Fork-Sub-Offset exceeds the number of messages that follow")
            return self._make(call, name, head, self._plan(head, fork, source, through, through + fork.sub))
        page = source.log.read_resident(through, 1)
        if page is None:
            return self._forked_later(call, name, head, fork, source, through)
        return self._cut(call, name, head, fork, source, through, page)

    async def _forked_later(
        self, call: Call, name: str, head: CreateHead, fork: ForkHead, source: Stream, through: int
    ) -> Reply:
        page = await self._context.workers.normal.run(source.log.read, through, 1)
        if self._context.streams.find(name) is not None:
            raise conflict("another request created a stream with this name")
        return await reply_of(self._cut(call, name, head, fork, source, through, page))

    def _cut(
        self, call: Call, name: str, head: CreateHead, fork: ForkHead, source: Stream, through: int, page: Page
    ) -> Replying:
        """Fork within the next record: the fork gets a copy of its first part."""
        if not page.data or len(page.data[0]) < fork.sub:
            raise bad_request("Stream-Fork-Sub-Offset exceeds the size of the append that follows")
        plan = self._plan(head, fork, source, through, through)
        plan = plan._replace(prefix=page.data[0][: fork.sub], prefix_key=page.keys[0])
        return self._make(call, name, head, plan)

    def _plan(self, head: CreateHead, fork: ForkHead, source: Stream, offset: int, through: int) -> _Plan:
        inherits = head.ttl_seconds is None and head.expires_at is None
        traits = StreamTraits(
            content_type=head.content_type or source.content_type,
            ttl_seconds=source.traits.ttl_seconds if inherits else head.ttl_seconds,
            expires_at=source.traits.expires_at if inherits else head.expires_at,
            fork=ForkTraits(source=source.name, offset=offset, sub=fork.sub),
        )
        config = source.log.config
        compact = config.compact if head.compact is None else head.compact
        retain = config.retain_until_in_lake if head.retain_until_in_lake is None else head.retain_until_in_lake
        if source.log.notes.keys().isdisjoint((REGISTRY, PROFILE)):
            return _Plan(traits, compact, retain, (source.log, through))
        notes: dict[str, object] = {}
        registry = source.registry.cut(through)
        if REGISTRY in source.log.notes:
            notes[REGISTRY] = registry.stored()
        if PROFILE in source.log.notes:
            notes[PROFILE] = source.log.notes[PROFILE]
        return _Plan(traits, compact, retain, (source.log, through), notes, registry, source.profile)


def _check_access(access: Access, source: str) -> None:
    """Refuse to fork a stream that the key may not read."""
    if not access.may("read"):
        raise Refusal(FORBIDDEN, "the API key lacks the read scope, which forking requires")
    if not access.may_touch(source):
        raise may_not_touch(source)


def _matches(stream: Stream, head: CreateHead) -> bool:
    """Whether the stream is what the request would create."""
    traits, fork = stream.traits, head.fork
    if stream.closed != head.closed:
        return False
    config = stream.log.config
    flags = ((head.compact, config.compact), (head.retain_until_in_lake, config.retain_until_in_lake))
    if any((wanted is not None or fork is None) and bool(wanted) != is_set for wanted, is_set in flags):
        return False
    if fork is None:
        if traits.fork is not None or media_type(head.content_type or OCTETS) != stream.media_type:
            return False
        return (traits.ttl_seconds, traits.expires_at) == (head.ttl_seconds, head.expires_at)
    known = traits.fork
    if known is None or known.source != fork.source or known.sub != fork.sub:
        return False
    if fork.offset is not None and fork.offset != known.offset:
        return False
    if head.content_type is not None and media_type(head.content_type) != stream.media_type:
        return False
    # Settings that the request leaves out were inherited.
    inherits = head.ttl_seconds is None and head.expires_at is None
    return inherits or (traits.ttl_seconds, traits.expires_at) == (head.ttl_seconds, head.expires_at)


def _location(call: Call) -> bytes:
    """The URL of the stream, as the client sees it."""
    path = quote(call.head.path, safe="/%:@!$&'()*+,;=~-._")
    return (origin(call.head) + path).encode("latin-1")


def _described(stream: Stream, status: int, location: bytes = b"", warning: str = "") -> Reply:
    headers: Headers = (next_offset(stream.end), *kept(stream))
    if stream.closed:
        headers += (CLOSED,)
    if location:
        headers += ((b"location", location),)
    if warning:
        headers += ((b"stream-warning", " ".join(warning.split()).encode("ascii", "replace")),)
    return Reply(b"", status, stream.content_type_bytes, headers)


def _deleted(_: object) -> Reply:
    return Reply(b"", 204, headers=(NO_STORE,))
