"""What is not kept of an element: names that turn into something else in the hands of careless programs, and numbers
that are none."""

from __future__ import annotations

import re
from collections.abc import Awaitable
from hashlib import sha256
from math import isfinite
from typing import Any

from strandline.engine import Batch
from strandline.engine.commit import Commit
from strandline.engine.errors import LogFull
from strandline.protocols.collections.bodies import PushBody, read_body, time_of
from strandline.protocols.collections.callers import is_json
from strandline.protocols.collections.catalogue import Catalogue
from strandline.protocols.collections.config import WRITE
from strandline.protocols.collections.context import CollectionsContext, Place, Places
from strandline.protocols.collections.documents import Element, Written
from strandline.protocols.collections.events import Event
from strandline.protocols.collections.permissions import Caller, check_fields_writable
from strandline.protocols.collections.problems import (
    bad_proof,
    event_refused,
    foreign_author,
    invalid_path,
    no_data,
    no_proof,
    too_large,
    ts_in_future,
    unauthorized,
    wrong_media_type,
)
from strandline.protocols.collections.rate_limits import PUSH
from strandline.protocols.http import Call, Reply
from strandline.protocols.turns import Replying, after, reply_of
from strandline.signing.author_proofs import DOMAIN, Proof, meta_of
from strandline.signing.canonical_json import canonical
from strandline.signing.keys import verify

#: Members with these names are dropped from objects, and from objects in objects. What is in an array is left as it
#: is: that is what authors have signed.
DROPPED = frozenset({"__proto__", "constructor", "prototype", "__class__", "__dict__"})

#: Without any of these in its text a document has nothing to lose. A name may be written with escapes; a number that is
#: too large for a double has three digits of exponent, or more than three hundred digits.
_SUSPECT = re.compile(rb"__proto__|constructor|prototype|__class__|__dict__|\\u|[eE]\+?[0-9]{3}|[0-9]{309}")


def sanitise(document: dict[str, Any], raw: bytes) -> tuple[dict[str, Any], bool]:
    """The document as it is kept, and whether that is another one. ``raw`` is the text that it was parsed from."""
    if _SUSPECT.search(raw) is None:
        return document, False
    kept = _without(document)
    finite = _finite(kept)
    return finite, kept != document or finite is not kept


def _without(document: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _without(value) if isinstance(value, dict) else value
        for name, value in document.items()
        if name not in DROPPED
    }


def _finite(value: Any) -> Any:
    """The same with null for what is no number; the very same object if there is nothing of that kind in it."""
    if isinstance(value, dict):
        members = {name: _finite(member) for name, member in value.items()}
        return value if all(members[name] is value[name] for name in members) else members
    if isinstance(value, list):
        elements = [_finite(element) for element in value]
        return value if all(map(lambda new, old: new is old, elements, value)) else elements
    if isinstance(value, float) and not isfinite(value):
        return None
    if isinstance(value, int) and abs(value).bit_length() > 1024:
        return None
    return value


# --- ``POST /push/<path>``: appending an element. The checks are in the order of the protocol -----------------------

#: How far ahead of the server's clock the time of an element may be.
MAX_AHEAD_MS = 300_000


class Pushing:
    """``prefix`` is what comes before the path of a document."""

    def __init__(self, context: CollectionsContext, catalogue: Catalogue, prefix: str) -> None:
        self._context = context
        self._places = Places(catalogue, WRITE)
        self._skip = len(prefix)

    def push(self, call: Call) -> Replying:
        """POST /push/<path>"""
        head, now = call.head, self._context.hub.now()
        place = self._places.find(head.path[self._skip :])
        caller = self._context.admission.admit(call, place.entry, WRITE, place.params, self._context.hub.wall())
        if not isinstance(caller, Caller):
            return self._push_later(call, place, caller)
        return self._push(call, place, caller, now)

    async def _push_later(self, call: Call, place: Place, caller: Awaitable[Caller]) -> Reply:
        return await reply_of(self._push(call, place, await caller, self._context.hub.now()))

    def _push(self, call: Call, place: Place, caller: Caller, now: int) -> Replying:
        context, collection = self._context, place.collection
        if not place.is_safe:
            raise invalid_path()
        _check_size(call, collection.max_body_bytes)
        context.check_rate(place.entry, PUSH, caller, call, now)
        if not is_json(call.head):
            raise wrong_media_type()
        body = read_body(call.body)
        data = body.data
        if isinstance(data, dict):
            check_fields_writable(collection, caller.roles, data)
            schema = context.schema(place.entry)
            if schema is not None:
                schema.check(data)
        else:
            raise no_data()
        element, told = _element(place, body, caller)
        ts = time_of(body.ts)
        if ts is not None and ts > max(now, context.hub.wall()) + MAX_AHEAD_MS:
            raise ts_in_future()
        announcing = context.announcing(place.entry)
        event = None if announcing is None else announcing.of(place.params, told, caller.identity)
        if not context.pressure.holds_writes:
            return self._keep(place, element, ts, event, caller.request_id)
        return context.turns.take_write(lambda: 0, lambda _: self._keep(place, element, ts, event, caller.request_id))

    def _keep(
        self, place: Place, element: Element, ts: int | None, event: Event | None, request_id: str | None
    ) -> Replying:
        context, now = self._context, self._context.hub.now()
        if place.rules.persist:
            written = context.documents.append(
                place.collection, place.rules, place.key, element, ts, now, event, request_id
            )
        else:
            durable = place.collection.durability == "fsync"
            written = _tell(element, now if ts is None else ts, event, durable, request_id)
        reply = Reply(b'{"hash":"%b","timestamp":%d}' % (written.hash.encode(), written.ts))
        return after(context.hub, written.commit, lambda _: reply)


def _check_size(call: Call, limit: int) -> None:
    """Of the body as it is, whatever was said of its size: nobody need say it."""
    if len(call.body) > limit or int(call.head.headers.get(b"content-length") or b"0") > limit:
        raise too_large()


def _element(place: Place, body: PushBody, caller: Caller) -> tuple[Element, bytes]:
    """What is kept, and what others are told that was sent."""
    data, changed = sanitise(body.data, body.raw)
    form = canonical(data)
    pubkey, signature = body.author_pubkey, body.author_signature
    signed = isinstance(pubkey, str) and isinstance(signature, str)
    if place.rules.require_author_signature:
        if not signed:
            raise no_proof()
        if caller.presenter is not None and pubkey != caller.presenter:
            raise foreign_author()
        if not verify(pubkey, signature, b'%b{"d":%b,"k":%b}' % (DOMAIN, form, canonical(place.key))):
            raise bad_proof()
    meta = meta_of(Proof(pubkey, signature)) if signed else None
    if not changed:
        return Element(body.raw, form, meta), body.raw
    return Element(form, form, meta), canonical(body.data)


def _tell(element: Element, ts: int, event: Event | None, durable: bool, request_id: str | None) -> Written:
    """Append only the event of an element that is not kept. It is as durable as the element would be, whatever the
    durability of its topic. A replayed request is recognised for as long as the topic keeps idempotency keys."""
    hash = sha256(element.canonical).hexdigest()
    commit: Commit[object] = Commit.of(None)
    if event is not None:
        with event.log() as log:
            try:
                if request_id is not None and log.remembers(request_id):
                    raise unauthorized()
                appended = log.append(Batch.of(event.payload(hash, ts)), idempotency_key=request_id)
            except LogFull as error:
                raise event_refused(str(error)) from None
        commit = event.after(log.sync() if durable and appended.done else appended)
    return Written(hash, ts, commit)
