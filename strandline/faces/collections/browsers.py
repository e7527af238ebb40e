"""What pages of allowed origins may read and send."""

from __future__ import annotations

from strandline.faces.web import Cors

#: A signed request needs all of these.
_ALLOWED = (
    b"Authorization, Content-Type, Accept, If-None-Match, X-Starfish-Sig, X-Starfish-Ts, X-Starfish-Nonce, "
    b"X-Starfish-Pub, X-Requested-With"
)
_EXPOSED = (b"access-control-expose-headers", b"ETag, Retry-After")
_PREFLIGHT = (
    (b"access-control-allow-methods", b"GET, POST, OPTIONS"),
    (b"access-control-allow-headers", _ALLOWED),
    (b"access-control-max-age", b"86400"),
)


def cors_of(origins: tuple[str, ...]) -> Cors:
    """``origins`` may call collections, beside those that may call everything."""
    return Cors(_EXPOSED, _PREFLIGHT, frozenset(origin.lower() for origin in origins))
