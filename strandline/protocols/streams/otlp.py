"""Traces, logs and metrics by OTLP over HTTP, each into streams with the profile for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from strandline.engine import Batch
from strandline.engine.commit import Commit
from strandline.engine.ownership import JSON, media_type
from strandline.engine.record import MAX_RECORD_BYTES
from strandline.late_import import LateModule
from strandline.protocols.streams.configuration import notes_of
from strandline.protocols.streams.context import StreamsContext
from strandline.protocols.streams.errors import bad_request, conflict
from strandline.protocols.streams.otlp_json import read_json, write_json
from strandline.protocols.streams.otlp_limits import ITEMS, SignalName
from strandline.protocols.streams.otlp_logs import log_event
from strandline.protocols.streams.otlp_metrics import metric_record
from strandline.protocols.streams.replies import CLOSED, next_offset
from strandline.protocols.streams.stream import Stream, StreamTraits
from strandline.protocols.streams.streams import check_name
from strandline.schema.errors import SchemaError
from strandline.schema.profiles import Evlog, Metrics, OtelTraces, Profile, load_profile
from strandline.schema.profiles.otel_limits import OtlpLimits
from strandline.schema.registry import Registry
from strandline.service.admission import reply_of
from strandline.service.http import NO_STORE, Call, Handler, Head, Reply
from strandline.service.problems import UNSUPPORTED_MEDIA_TYPE, Refusal, body_too_large, may_not_touch

otlp_protobuf: Any = LateModule("strandline.protocols.streams.otlp_protobuf")

PROTOBUF = "application/x-protobuf"
_FORMS = {
    PROTOBUF: (lambda *of: otlp_protobuf.read_protobuf(*of), lambda *of: otlp_protobuf.write_protobuf(*of)),
    JSON: (read_json, write_json),
}
#: How many different reasons for rejected items an answer lists.
MAX_MESSAGES = 5

_encode = msgspec.json.Encoder().encode


class Signal(NamedTuple):
    """``stored`` returns an item as it is stored, given the profile and the time; None: there is nothing to store."""

    profile: type[Profile]
    stored: Callable[[Any, dict[str, Any], int], dict[str, Any] | None]


def _metric(profile: Metrics, point: dict[str, Any], now: int) -> dict[str, Any] | None:
    record = metric_record(point)
    if record is None:
        return None
    normalised: dict[str, Any] = profile.normalise([record], now)[0]
    return normalised


SIGNALS: dict[SignalName, Signal] = {
    "traces": Signal(OtelTraces, lambda profile, span, _: profile.span(span)),
    "logs": Signal(Evlog, log_event),
    "metrics": Signal(Metrics, _metric),
}
#: The limits of requests to streams whose profile does not set them.
_LIMITS = OtlpLimits()


class Taken(NamedTuple):
    """The outcome of a request: its records, the number of rejected items, and the reasons."""

    batch: Batch | None
    size: int
    rejected: int
    why: str


class Target(NamedTuple):
    """The stream for the items and its rules. Without a stream, one is created."""

    stream: Stream | None
    profile: Profile
    registry: Registry

    @property
    def limits(self) -> OtlpLimits:
        return self.profile.settings.otlp_limits if isinstance(self.profile, OtelTraces) else _LIMITS


class Otlp:
    def __init__(self, context: StreamsContext) -> None:
        self._context = context

    def into_stream(self, signal: SignalName) -> Handler:
        """POST /v1/stream/{name}/_otlp/v1/{signal}"""

        async def take(call: Call) -> Reply:
            self._context.stream(call)
            return await self._take(call, signal, call.head.params["name"], creates=False)

        return take

    def into_default(self, signal: SignalName) -> Handler:
        """POST /v1/{signal}: into the stream of the settings."""
        settings = self._context.settings
        name: str = getattr(settings, f"otlp_{signal}_stream")

        async def take(call: Call) -> Reply:
            if not name:
                raise bad_request(
                    f"the server has no stream for {signal}: set otlp_{signal}_stream, or send the request to "
                    f"/v1/stream/<name>/_otlp/v1/{signal}"
                )
            if not call.access.may_touch(name):
                raise may_not_touch(name)
            return await self._take(call, signal, name, creates=settings.otlp_auto_create)

        return take

    async def _take(self, call: Call, signal: SignalName, name: str, *, creates: bool) -> Reply:
        return await reply_of(self._context.admission.write(lambda _: self._take_now(call, signal, name, creates)))

    async def _take_now(self, call: Call, signal: SignalName, name: str, creates: bool) -> Reply:
        context = self._context
        form = _form(call.head, signal)
        while True:
            target = self._target(signal, name, creates)
            _check_size(call, target.limits)
            now = context.hub.now()
            taken = await context.workers.normal.run(_taken, signal, form, call.body, target, now)
            # The stream may have been closed, created, removed, or given another profile meanwhile.
            if _same(target, self._target(signal, name, creates)):
                break
        reply = Reply(_FORMS[form][1](signal, taken.rejected, taken.why), 200, form.encode(), (NO_STORE,))
        if taken.batch is None:
            return reply
        context.check_backlog()
        commit = self._append(name, target, taken.batch)
        context.meters.append_records.add(len(taken.batch))
        context.meters.append_bytes.add(len(call.body))
        return await reply_of(context.after_append(commit, taken.size, lambda _: reply))

    def _append(self, name: str, target: Target, batch: Batch) -> Commit[Any]:
        now = self._context.hub.now()
        if target.stream is not None:
            target.stream.use(now)
            return target.stream.log.append(batch)
        traits = StreamTraits(content_type=JSON)
        notes = notes_of(target.profile, target.registry)
        return self._context.streams.create(name, traits, notes=notes, batch=batch)[1]

    def _target(self, signal: SignalName, name: str, creates: bool) -> Target:
        """The target; refuses a stream that does not accept such items."""
        streams = self._context.streams
        if creates and streams.find(name) is None:
            return self._new(signal, check_name(name))
        stream = streams.get(name)
        self._context.check_change(stream)
        if stream.closed:
            raise conflict("the stream is closed", (next_offset(stream.end), CLOSED))
        profile, wanted = stream.profile, SIGNALS[signal].profile
        if not isinstance(profile, wanted):
            raise bad_request(f"the stream has the profile {profile.kind}; {signal} require {wanted.kind}")
        return Target(stream, profile, stream.registry)

    @staticmethod
    def _new(signal: SignalName, name: str) -> Target:
        profile = load_profile({"kind": SIGNALS[signal].profile.kind})
        registry = profile.registry(name)
        assert registry is not None
        return Target(None, profile, registry)


def _same(before: Target, now: Target) -> bool:
    if before.stream is None or now.stream is None:
        return before.stream is now.stream
    return before.stream is now.stream and before.profile is now.profile and before.registry is now.registry


def _form(head: Head, signal: SignalName) -> str:
    form = media_type(head.headers.get(b"content-type", b"").decode("latin-1"))
    if form not in _FORMS:
        raise Refusal(
            UNSUPPORTED_MEDIA_TYPE, f"the content type of {signal} must be {PROTOBUF} or {JSON}, not {form or 'empty'}"
        )
    return form


def _check_size(call: Call, limits: OtlpLimits) -> None:
    """The body is decompressed by now; the compressed size is known only if the client declared it."""
    headers = call.head.headers
    if headers.get(b"content-encoding", b"").strip().lower() not in (b"", b"identity"):
        if int(headers.get(b"content-length") or 0) > limits.max_compressed_bytes:
            raise body_too_large(limits.max_compressed_bytes)
    if len(call.body) > limits.max_decoded_bytes:
        raise body_too_large(limits.max_decoded_bytes)


class _Rejected:
    """The number of rejected items, and the distinct reasons."""

    def __init__(self) -> None:
        self.count = 0
        self._messages: dict[str, None] = {}

    def add(self, message: str, count: int = 1) -> None:
        self.count += count
        if len(self._messages) < MAX_MESSAGES:
            self._messages[message] = None

    @property
    def why(self) -> str:
        return "; ".join(self._messages)


def _taken(signal: SignalName, form: str, body: bytes, target: Target, now: int) -> Taken:
    """Decode the items. Slow: runs in a thread."""
    profile, registry, limits = target.profile, target.registry, target.limits
    items = _FORMS[form][0](signal, body, limits)
    rejected = _Rejected()
    if items.too_many:
        message = f"there are more than {limits.max_spans_per_request} {ITEMS[signal]} in one request"
        rejected.add(message, items.too_many)
    documents = []
    stored = SIGNALS[signal].stored
    for item in items.accepted:
        try:
            document = stored(profile, item, now)
        except SchemaError as error:
            rejected.add(str(error))
            continue
        if document is not None:
            documents.append(document)
    rows = _rows(documents, registry, rejected)
    if not rows:
        return Taken(None, 0, rejected.count, rejected.why)
    data, kept = [row for row, _ in rows], [document for _, document in rows]
    keys = registry.keys_of(kept, None)
    batch = Batch(data, profile.keys_of(kept) if keys is None else keys)
    return Taken(batch, sum(map(len, data)), rejected.count, rejected.why)


def _rows(documents: list[Any], registry: Registry, rejected: _Rejected) -> list[tuple[bytes, Any]]:
    """The items that conform to the schema of the stream, which may be stricter than that of the profile."""
    try:
        registry.check(documents)
        strict = False
    except SchemaError:
        strict = True
    rows = []
    for document in documents:
        try:
            if strict:
                registry.check([document])
            row = _encode(document)
            if len(row) > MAX_RECORD_BYTES:
                raise SchemaError(f"the record has {len(row)} bytes, the limit is {MAX_RECORD_BYTES}")
            rows.append((row, document))
        except SchemaError as error:
            rejected.add(str(error))
    return rows
