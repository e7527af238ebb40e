"""What replies share: JSON, headers for browsers, and headers with the offsets of a stream."""

from __future__ import annotations

from typing import Any

import msgspec

from strandline.protocols.streams.errors import JSON
from strandline.protocols.streams.grammar import iso
from strandline.protocols.streams.offsets import encode_bytes
from strandline.protocols.streams.stream import Stream
from strandline.service.http import NO_STORE, Cors, Head, Reply
from strandline.service.problems import Headers

_EXPOSED = (
    "Stream-Next-Offset", "Stream-End-Offset", "Stream-Cursor", "Stream-Up-To-Date", "Stream-Closed", "Stream-TTL",
    "Stream-Expires-At", "Stream-Compact", "Stream-SSE-Data-Encoding", "Stream-Expected-Seq", "Stream-Received-Seq",
    "Producer-Epoch", "Producer-Seq", "Producer-Expected-Seq", "Producer-Received-Seq",
    "Stream-Filter-Scan-Limit-Reached",
    "Stream-Filter-Scan-Limit-Bytes", "Stream-Filter-Scanned-Bytes", "Retry-After", "Location", "etag", "content-type",
    "content-encoding", "vary",
)  # fmt: skip
_ALLOWED = (
    "content-type", "authorization", "if-none-match", "Stream-Seq", "Stream-TTL", "Stream-Expires-At", "Stream-Closed",
    "Stream-Compact", "Stream-Key", "Stream-Timestamp", "Producer-Id", "Producer-Epoch", "Producer-Seq",
    "Stream-Forked-From", "Stream-Fork-Offset", "Stream-Fork-Sub-Offset",
)  # fmt: skip

#: What pages of allowed origins may read and send.
CORS = Cors(
    (b"access-control-expose-headers", ", ".join(_EXPOSED).encode()),
    (
        (b"access-control-allow-methods", b"GET, POST, PUT, DELETE, HEAD, OPTIONS"),
        (b"access-control-allow-headers", ", ".join(_ALLOWED).encode()),
        (b"access-control-max-age", b"86400"),
    ),
)
#: On every reply: a stream may hold anything, even a page with scripts, which must not run as a page of this server.
SANDBOX: Headers = ((b"content-security-policy", b"default-src 'none'; sandbox; frame-ancestors 'none'"),)

#: Media types that a browser runs or renders as documents. When opened directly, they are saved instead.
_ACTIVE = frozenset((
    "text/html", "text/xml", "application/xml", "text/xsl", "text/javascript", "application/javascript",
    "application/x-javascript", "text/ecmascript", "application/ecmascript", "text/css", "application/pdf",
    "application/x-shockwave-flash", "multipart/x-mixed-replace", "multipart/related", "message/rfc822",
))  # fmt: skip
_ATTACHMENT: Headers = ((b"content-disposition", b"attachment"),)

CLOSED = (b"stream-closed", b"true")
UP_TO_DATE = (b"stream-up-to-date", b"true")
COMPACT = (b"stream-compact", b"true")
RETAINS = (b"stream-retain-until-in-lake", b"true")


def json_reply(answer: Any, status: int = 200, headers: Headers = ()) -> Reply:
    """A reply with a struct of the wire package as its body. Caches must not store it."""
    return Reply(msgspec.json.encode(answer), status, JSON, (NO_STORE, *headers))


def origin(head: Head) -> str:
    """The scheme and host of the server, as the client sees them."""
    headers = head.headers
    scheme = headers.get(b"x-forwarded-proto", b"http").split(b",")[0].strip().lower()
    host = headers.get(b"x-forwarded-host", headers.get(b"host", b"localhost")).split(b",")[0].strip()
    return f"{'https' if scheme == b'https' else 'http'}://{host.decode('latin-1')}"


def next_offset(seq: int) -> tuple[bytes, bytes]:
    return b"stream-next-offset", encode_bytes(seq)


def end_offset(seq: int) -> tuple[bytes, bytes]:
    return b"stream-end-offset", encode_bytes(seq)


def disposition(stream: Stream) -> Headers:
    """The header on replies with the payload of a stream: active content is saved instead of shown."""
    return _ATTACHMENT if stream.media_type in _ACTIVE or stream.media_type.endswith("+xml") else ()


def kept(stream: Stream) -> Headers:
    """The headers that say how long the stream is kept, and which records."""
    config = stream.log.config
    compact = (COMPACT,) if config.compact else ()
    retains = (RETAINS,) if config.retain_until_in_lake else ()
    return (*lifetime(stream), *compact, *retains)


def lifetime(stream: Stream) -> Headers:
    """When the stream expires, and the window within which it must be used."""
    expires_at = stream.expires_at
    if expires_at is None:
        return ()
    at = (b"stream-expires-at", iso(expires_at).encode())
    if stream.traits.ttl_seconds is None:
        return (at,)
    return (b"stream-ttl", b"%d" % stream.traits.ttl_seconds), at
