"""What pages of allowed origins may read and send."""

from __future__ import annotations

from strandline.faces.web import Cors

_ALLOWED = b"content-type, content-encoding, authorization, Strandline-User, Last-Event-ID"

CORS = Cors(
    (b"access-control-expose-headers", b"Retry-After, content-type, content-encoding, vary"),
    (
        (b"access-control-allow-methods", b"GET, POST, OPTIONS"),
        (b"access-control-allow-headers", _ALLOWED),
        (b"access-control-max-age", b"86400"),
    ),
)
