"""Live invalidation over HTTP: touch/meta, touch/wait and touch/templates/activate.

A wait is only an answer that comes later: it needs no task and no timer of its own.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TypeVar

import msgspec

from strandline.delivery.invalidation.keys import hexadecimal, key_id, parse_hexadecimal
from strandline.delivery.invalidation.live import LiveInvalidation, Lives, meta_of
from strandline.delivery.invalidation.request import WaitRequest
from strandline.delivery.invalidation.templates import Activation
from strandline.delivery.invalidation.waiters import TouchAnswer
from strandline.engine import Batch, Log
from strandline.engine.errors import EngineError
from strandline.nearest_name import decode_body
from strandline.protocols.streams import offsets
from strandline.protocols.streams.context import StreamsContext
from strandline.protocols.streams.errors import bad_request, not_found, overloaded
from strandline.protocols.streams.grammar import number
from strandline.protocols.streams.replies import json_reply
from strandline.protocols.streams.stream import Stream, StreamTraits
from strandline.protocols.streams.wire.touch import (
    DEFAULT_TIMEOUT_MS,
    MAX_EXACT_KEYS,
    MAX_TIMEOUT_MS,
    ActivateAnswer,
    ActivateBody,
    ActivatedTemplate,
    DeniedTemplate,
    TemplateBody,
    TemplateLimits,
    WaitAnswer,
    WaitBody,
)
from strandline.protocols.streams.wire.values import StreamError
from strandline.schema.profiles.state_protocol import StateProtocol
from strandline.schema.profiles.touch_settings import TouchSettings
from strandline.service.http import Call, Later, Reply
from strandline.service.problems import Refusal

#: The stream that gets a summary every ten seconds.
LIVE_METRICS = "live.metrics"
#: The maximum number of requests that wait on one stream. Each takes about a kilobyte.
MAX_WAITING = 200_000

_CURSOR = re.compile("([0-9a-f]{16}):(0|[1-9][0-9]{0,18})", re.ASCII)
#: How the decoder names the pattern of names.
_NOT_BLANK = r"matching regex '\\S'"
_PATH = re.compile(r"^(?P<words>.*?)(?: - at `\$(?P<path>.*)`)?$", re.DOTALL)
T = TypeVar("T")

_wait_decoder = msgspec.json.Decoder(WaitBody)
_activate_decoder = msgspec.json.Decoder(ActivateBody)


class TouchRoutes:
    def __init__(self, context: StreamsContext) -> None:
        self._context = context
        self.lives = Lives(context.hub, context.live.alarms, self._settings_of, self._publish)

    # --- requests --------------------------------------------------------------------------------------------------

    def meta(self, call: Call) -> Reply | Later:
        """GET /v1/stream/{name}/touch/meta"""
        live = self._live(self._context.stream(call))
        settle = call.query.get("settle")
        if settle not in (None, "flush"):
            raise bad_request("settle must be flush")
        timeout_ms = number("timeoutMs", call.query.get("timeoutMs", str(DEFAULT_TIMEOUT_MS)))
        if timeout_ms > MAX_TIMEOUT_MS:
            raise bad_request(f"timeoutMs must be between 0 and {MAX_TIMEOUT_MS}")
        live.runtime.attend()
        if settle is None or live.runtime.settled or not timeout_ms:
            live.go_on()
            return _meta(live)
        later = Later()
        live.runtime.settle(timeout_ms, lambda: later.settle(_meta(live)))
        live.go_on()
        return later

    def activate(self, call: Call) -> Reply:
        """POST /v1/stream/{name}/touch/templates/activate"""
        live = self._live(self._context.stream(call))
        body = _decoded(_activate_decoder, call.body, "activate")
        outcome = _activate(live, body.templates, body.inactivity_ttl_ms)
        live.go_on()
        return _activated(live, outcome)

    def wait(self, call: Call) -> Reply | Later:
        """POST /v1/stream/{name}/touch/wait"""
        stream = self._context.stream(call)
        live = self._live(stream)
        body = _decoded(_wait_decoder, call.body, "wait")
        epoch, generation = _cursor(body.cursor)
        request = _request(body)
        runtime = live.runtime
        if body.exact and runtime.kind_of(request) != "fineKey":
            raise bad_request("wait.exact requires waits on single keys, which are off while the stream lags")
        if len(runtime.waiters) >= MAX_WAITING:
            raise overloaded("too many requests wait on this stream")
        if body.declare_templates is not None:
            _activate(live, body.declare_templates, body.inactivity_ttl_ms)
        later = Later()
        answer = runtime.wait(request, epoch, generation, partial(self._tell, live, later))
        live.go_on()
        return later if answer is None else _shown(runtime.epoch, answer)

    def drain(self) -> None:
        """Answer all waiting requests."""
        self.lives.stop()

    # --- delayed answers -------------------------------------------------------------------------------------------

    def _tell(self, live: LiveInvalidation, later: Later, answer: TouchAnswer) -> None:
        if answer.verdict != "ended":
            later.settle(_shown(live.runtime.epoch, answer))
            return
        try:
            later.settle(self._begun_anew(live.log, answer))
        except Refusal as refusal:
            later.fail(refusal)

    def _begun_anew(self, log: Log, answer: TouchAnswer) -> Reply:
        """The answer to a request that waited when touch was reconfigured: earlier cursors are no longer valid."""
        stream = self._context.streams.find(log.name)
        if stream is None or stream.log.epoch != log.epoch:
            raise not_found()
        runtime = self._live(stream).runtime
        stale = TouchAnswer("stale", answer.kind, runtime.journal.generation, runtime.journal.last)
        return _shown(runtime.epoch, stale)

    # --- streams ---------------------------------------------------------------------------------------------------

    def _live(self, stream: Stream) -> LiveInvalidation:
        live = self.lives.get(stream.log)
        if live is None:
            raise not_found("touch not enabled")
        stream.use(self._context.hub.now())
        return live

    def _settings_of(self, log: Log) -> TouchSettings | None:
        stream = self._context.streams.find(log.name)
        if stream is None or stream.log.epoch != log.epoch or stream.gone:
            return None
        profile = stream.profile
        if not isinstance(profile, StateProtocol) or profile.touch is None or not profile.touch.enabled:
            return None
        return profile.touch

    def _publish(self, ticks: list[dict[str, object]]) -> None:
        """Best effort: a stream of metrics that cannot be written must not affect requests."""
        streams = self._context.streams
        try:
            stream = streams.find(LIVE_METRICS)
            if stream is None:
                stream, _ = streams.create(LIVE_METRICS, StreamTraits(), durability="disk")
            if ticks and stream.is_plain and stream.is_json and not stream.closed:
                stream.log.append(Batch([msgspec.json.encode(tick) for tick in ticks]))
        except (EngineError, Refusal):
            pass


# --- bodies --------------------------------------------------------------------------------------------------------


def _decoded(decoder: msgspec.json.Decoder[T], body: bytes, what: str) -> T:
    """The body, or a refusal that names the part that is wrong."""
    try:
        return decode_body(decoder, body)
    except msgspec.ValidationError as error:
        match = _PATH.match(str(error))
        assert match is not None
        words = match["words"].replace(_NOT_BLANK, "that is not blank")
        raise bad_request(f"{what}{match['path'] or ''} is not valid: {words}") from None
    except msgspec.DecodeError:
        raise bad_request(f"{what} must be valid JSON") from None


def _cursor(text: str) -> tuple[str, int | None]:
    """The epoch and the generation; None: from now on."""
    if text == "now":
        return "", None
    match = _CURSOR.fullmatch(text)
    if match is None:
        raise bad_request('wait.cursor must be "now" or a cursor: sixteen hexadecimal digits, a colon and a number')
    return match[1], int(match[2])


def _request(body: WaitBody) -> WaitRequest:
    if not (body.keys or body.key_ids):
        raise bad_request("wait.keys or wait.keyIds must name at least one key")
    templates = [_template_id(text) for text in body.template_ids_used]
    return WaitRequest(
        frozenset([*map(key_id, body.keys), *body.key_ids]),
        body.timeout_ms,
        coarse=body.interest_mode == "coarse",
        keys=_exact_keys(body) if body.exact else None,
        templates=templates,
    )


def _template_id(text: str) -> int:
    identifier = parse_hexadecimal(text.strip().lower())
    if identifier is None:
        raise bad_request(f"wait.templateIdsUsed: {text!r} is not a template id, sixteen hexadecimal digits")
    return identifier


def _exact_keys(body: WaitBody) -> frozenset[int]:
    keys = [parse_hexadecimal(text.strip().lower()) for text in body.keys]
    if body.interest_mode != "fine" or body.key_ids or not 1 <= len(keys) <= MAX_EXACT_KEYS or None in keys:
        raise bad_request(
            f"wait.exact requires interestMode fine and 1 to {MAX_EXACT_KEYS} keys of sixteen hexadecimal digits"
        )
    return frozenset(key for key in keys if key is not None)


def _activate(live: LiveInvalidation, templates: list[TemplateBody], ttl_ms: int | None) -> Activation:
    return live.runtime.activate([template.declaration() for template in templates], ttl_ms)


# --- answers -------------------------------------------------------------------------------------------------------


def _meta(live: LiveInvalidation) -> Reply:
    position = live.runtime.follower.position
    return json_reply(meta_of(live.runtime, live.now(), offsets.encode(position) if position else None))


def _activated(live: LiveInvalidation, outcome: Activation) -> Reply:
    runtime = live.runtime
    cursor = f"{runtime.epoch}:{runtime.journal.generation}"
    limits = runtime.settings.templates
    return json_reply(
        ActivateAnswer(
            activated=[
                ActivatedTemplate(template_id=hexadecimal(template.id), active_from_touch_offset=cursor)
                for template in outcome.activated
            ],
            denied=[DeniedTemplate(template, reason) for template, reason in outcome.denied],
            limits=TemplateLimits(limits.max_active_per_stream, limits.max_active_per_entity),
        )
    )


def _shown(epoch: str, answer: TouchAnswer) -> Reply:
    """The reply, built once for all requests with the same answer."""
    reply = answer.memo
    if reply is None:
        reply = answer.memo = json_reply(_answer(epoch, answer))
    assert isinstance(reply, Reply)
    return reply


def _answer(epoch: str, answer: TouchAnswer) -> WaitAnswer:
    bucket = answer.bucket
    shown = WaitAnswer(
        cursor=f"{epoch}:{answer.generation}",
        effective_wait_kind=answer.kind,
        bucket_max_source_offset_seq=str(bucket.source_seq - 1),
        flush_at_ms=bucket.flushed_at,
        bucket_start_ms=bucket.started_at,
    )
    if answer.verdict != "stale":
        shown.touched = answer.verdict == "touched"
    else:
        shown.stale, shown.epoch, shown.generation = True, epoch, answer.generation
        shown.error = StreamError("stale", "the cursor is of another epoch: query again, and continue from this cursor")
    return shown
