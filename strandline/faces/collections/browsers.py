"""Pages of other origins: which of them a browser lets call."""

from __future__ import annotations

from strandline.faces.collections.problems import Headers
from strandline.faces.web import Call, Head, Reply

EVERY = "*"
#: What a page may send: a signed request needs all of it.
ALLOWED = (
    b"Authorization, Content-Type, Accept, If-None-Match, X-Starfish-Sig, X-Starfish-Ts, X-Starfish-Nonce, "
    b"X-Starfish-Pub, X-Requested-With"
)
#: What a page may see of an answer, beside what it may see anyway.
EXPOSED = (b"access-control-expose-headers", b"ETag, Retry-After")
_PREFLIGHT: Headers = (
    (b"access-control-allow-methods", b"GET, POST, OPTIONS"),
    (b"access-control-allow-headers", ALLOWED),
    (b"access-control-max-age", b"86400"),
)
_VARY = (b"vary", b"origin")


class Browsers:
    """``origins`` are those whose pages may call."""

    def __init__(self, origins: tuple[str, ...]) -> None:
        self.any = bool(origins)
        self._every = EVERY in origins
        self._origins = frozenset(origin.encode() for origin in origins)

    def headers(self, head: Head) -> Headers:
        """Of every reply."""
        if self._every:
            return ((b"access-control-allow-origin", b"*"), EXPOSED)
        origin = head.headers.get(b"origin", b"")
        if origin not in self._origins:
            return (_VARY,)
        return ((b"access-control-allow-origin", origin), EXPOSED, _VARY)

    def preflight(self, call: Call) -> Reply:
        """What a browser asks before it sends what a page wants to send."""
        known = self._every or call.head.headers.get(b"origin", b"") in self._origins
        return Reply(b"", 204, headers=_PREFLIGHT if known else ())
