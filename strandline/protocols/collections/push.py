"""``POST /push/<path>``: append an element, or replace a regular document. The checks are in the order of the
protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, NamedTuple

import msgspec

from strandline.collections.config import WRITE
from strandline.collections.documents import PreparedAppend, prepare
from strandline.collections.elements import is_deep
from strandline.collections.errors import invalid_path, unauthorized
from strandline.collections.paths import DocumentPath, PathIndex
from strandline.collections.permissions import Caller
from strandline.collections.regular_documents import (
    MAX_ATTEMPTS,
    PreparedPush,
    VersionPushed,
    busy,
    prepare_push,
)
from strandline.protocols.collections.authorization import is_json
from strandline.protocols.collections.context import CollectionsContext
from strandline.protocols.collections.errors import (
    not_an_object,
    repeated_member,
    too_deep,
    too_large,
    wrong_media_type,
)
from strandline.protocols.collections.wire import PushAnswer, PushRequest, encode
from strandline.service.admission import Replying, reply_of
from strandline.service.http import Call, Later, Reply
from strandline.signing.canonical_json import NotJson, RepeatedMember, canonical, check_members, parse, parse_signed
from strandline.spans import READ

#: Larger bodies are read and validated on a worker thread: the event loop would take milliseconds for them.
PREPARED_AT_ONCE = 32 << 10

_decode = msgspec.json.Decoder(PushRequest).decode
_read_any = msgspec.json.Decoder().decode


class PushBody(NamedTuple):
    """The members of a body, of any type. ``raw`` is the text of the data; ``author`` is the public key and the
    signature."""

    data: Any
    raw: bytes
    ts: Any
    base_hash: Any
    author: tuple[Any, Any]


def read_body(body: bytes) -> PushBody:
    """Raises Refused for a body that is not a JSON object, is nested too deeply, or repeats a member."""
    try:
        if not body.isascii():
            body.decode()
        decoded = _decode(body)
        raw = bytes(decoded.data)
        author = decoded.author_pubkey, decoded.author_signature
        read = PushBody(parse(raw), raw, decoded.ts, decoded.base_hash, author)
        check_members(body, _read_any(body))
    except RecursionError:
        raise too_deep() from None
    except RepeatedMember as error:
        raise repeated_member(error.name) from None
    except msgspec.DecodeError:
        read = _read_slowly(body)
    except (UnicodeDecodeError, NotJson):
        raise not_an_object() from None
    if is_deep(body):
        raise too_deep()
    return read


def _read_slowly(body: bytes) -> PushBody:
    """Read what the fast decoder refuses: bodies without data, halves of surrogate pairs, very large numbers."""
    try:
        decoded = parse_signed(body)
    except RepeatedMember as error:
        raise repeated_member(error.name) from None
    except NotJson:
        raise (too_deep() if is_deep(body) else not_an_object()) from None
    if not isinstance(decoded, dict):
        raise not_an_object()
    data = decoded.get("data")
    author = (decoded.get("authorPubkey"), decoded.get("authorSignature"))
    return PushBody(data, canonical(data), decoded.get("ts"), decoded.get("baseHash"), author)


class PushHandler:
    """``prefix`` is the part of the route before the path of a document."""

    def __init__(self, context: CollectionsContext, index: PathIndex, prefix: str) -> None:
        self._context = context
        self._index = index
        self._skip = len(prefix)
        #: Signed requests that are not answered at once, by their paths and signatures.
        self._underway: dict[tuple[str, bytes], asyncio.Task[Reply]] = {}

    def push(self, call: Call) -> Replying:
        """POST /push/<path>"""
        signature = call.head.headers.get(b"x-starfish-sig")
        if signature is None:
            return self._start(call)
        request = call.head.path, signature
        first = self._underway.get(request)
        if first is not None:
            return self._repeat(call, first)
        answer = self._start(call)
        if isinstance(answer, Reply | Later):
            return answer
        task = self._underway[request] = asyncio.ensure_future(reply_of(answer))
        task.add_done_callback(lambda _: self._underway.pop(request))
        return task

    async def _repeat(self, call: Call, first: asyncio.Task[Reply]) -> Reply:
        """Push when the same request, which arrived earlier and may still be accepted, is answered."""
        await asyncio.wait((first,))
        return await reply_of(self.push(call))

    def _start(self, call: Call) -> Replying:
        head, now = call.head, self._context.hub.now()
        path = self._index.resolve(head.path[self._skip :], WRITE)
        caller = self._context.authorizer.authorize(call, path.bound, WRITE, path.params, self._context.hub.wall())
        if not isinstance(caller, Caller):
            return self._push_later(call, path, caller)
        return self._push(call, path, caller, now)

    async def _push_later(self, call: Call, path: DocumentPath, caller: Awaitable[Caller]) -> Reply:
        return await reply_of(self._push(call, path, await caller, self._context.hub.now()))

    def _push(self, call: Call, path: DocumentPath, caller: Caller, now: int) -> Replying:
        context = self._context
        if caller.is_repeated and not context.has_accepted(path, caller):
            raise unauthorized()
        if not path.is_safe:
            raise invalid_path()
        _check_size(call, path.collection.max_body_bytes)
        context.check_push_rate(path, caller, call, now)
        if not is_json(call.head):
            raise wrong_media_type()
        # The time of a client is also compared with the system clock, which the client's clock may agree with.
        latest = max(now, context.hub.wall())
        if len(call.body) > PREPARED_AT_ONCE:
            return self._write_later(path, call.body, caller, now, latest)
        return self._write(_prepared(path, call.body, caller, now, latest))

    async def _write_later(self, path: DocumentPath, body: bytes, caller: Caller, now: int, latest: int) -> Reply:
        """Prepare a large push on a worker thread."""
        prepared = await self._context.workers.normal.run(_prepared, path, body, caller, now, latest)
        return await reply_of(self._write(prepared))

    def _write(self, prepared: PreparedAppend | PreparedPush) -> Replying:
        admission = self._context.kernel.admission
        if isinstance(prepared, PreparedPush):
            return admission.write(lambda _: self._replace(prepared))
        return admission.write(lambda _: self._append(prepared))

    def _append(self, append: PreparedAppend) -> Replying:
        context = self._context
        appended = context.documents.append(append, context.hub.now())
        reply = Reply(encode(PushAnswer(appended.hash, appended.ts)))
        return context.kernel.admission.after(appended.commit, lambda _: reply)

    def _replace(self, push: PreparedPush) -> Replying:
        pushed = self._context.regular_documents.push(push, self._context.hub.now())
        return self._replace_later(push) if pushed is None else self._replaced(pushed)

    async def _replace_later(self, push: PreparedPush) -> Reply:
        """Replace a document whose current version must be read from the disk."""
        context = self._context
        for _ in range(MAX_ATTEMPTS):
            document = context.regular_documents.find(push.path.key)
            if document is not None:
                await context.workers.normal.run(document.load, part=READ)
            pushed = context.regular_documents.push(push, context.hub.now())
            if pushed is not None:
                return await reply_of(self._replaced(pushed))
        raise busy(push.path.key)

    def _replaced(self, pushed: VersionPushed) -> Replying:
        reply = Reply(encode(PushAnswer(pushed.hash, pushed.ts)))
        return self._context.kernel.admission.after(pushed.commit, lambda _: reply)


def _prepared(
    path: DocumentPath, content: bytes, caller: Caller, now: int, latest: int
) -> PreparedAppend | PreparedPush:
    """Read and validate a push. ``latest`` is the latest time to compare the time of a client with. Any thread may call
    it."""
    body = read_body(content)
    if path.is_regular:
        return prepare_push(path, body.data, body.raw, body.author, body.base_hash, caller)
    return prepare(path, body.data, body.raw, body.author, body.ts, caller, now if body.ts is None else latest)


def _check_size(call: Call, limit: int) -> None:
    """Check the body as it arrived and the size that the headers declare, which they need not do."""
    if len(call.body) > limit or int(call.head.headers.get(b"content-length") or b"0") > limit:
        raise too_large()
