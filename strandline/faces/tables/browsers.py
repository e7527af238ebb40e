"""What browsers are told, so that a page from anywhere may use tables. What it may not do is a matter of keys."""

from __future__ import annotations

from strandline.faces.web import Call, Reply

Headers = tuple[tuple[bytes, bytes], ...]

#: On every reply.
FOR_BROWSERS: Headers = (
    (b"access-control-allow-origin", b"*"),
    (b"access-control-expose-headers", b"Retry-After, content-type, content-encoding, vary"),
    (b"cross-origin-resource-policy", b"cross-origin"),
)
_PREFLIGHT: Headers = (
    (b"access-control-allow-methods", b"GET, POST, OPTIONS"),
    (b"access-control-allow-headers", b"content-type, content-encoding, authorization, Strandline-User, Last-Event-ID"),
    (b"access-control-max-age", b"86400"),
)


def preflight(call: Call) -> Reply:
    """OPTIONS of anything."""
    return Reply(b"", 204, headers=_PREFLIGHT)
