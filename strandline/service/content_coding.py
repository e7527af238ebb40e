"""Which compression a client wants: the `Accept-Encoding` header."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from strandline.service.http import Head

#: Longer headers are not remembered. Those of browsers and libraries have fewer than 50 bytes.
MAX_REMEMBERED_BYTES = 200


def accepted_coding(head: Head, offered: Sequence[bytes]) -> bytes | None:
    """The coding with the highest q-value of those that the server offers, the first of them if several have it; None
    if the client accepts none of them or prefers the plain content."""
    header = head.headers.get(b"accept-encoding")
    if not header:
        return None
    weights = _remembered_weights(header) if len(header) <= MAX_REMEMBERED_BYTES else _weights(header)
    others = weights.get(b"*", 0.0)
    best, most = None, 0.0
    for coding in offered:
        weight = weights.get(coding, others)
        if weight > most:
            best, most = coding, weight
    return best if most >= weights.get(b"identity", 0.0) else None


def _weights(header: bytes) -> Mapping[bytes, float]:
    """The q-values by coding. A coding with an invalid q-value is not accepted."""
    weights: dict[bytes, float] = {}
    for offer in header.lower().split(b","):
        name, *parameters = (part.strip() for part in offer.split(b";"))
        weight = 1.0
        for parameter in parameters:
            key, _, value = parameter.partition(b"=")
            if key.strip() == b"q":
                weight = _q_value(value.strip())
        if name:
            weights[name] = weight
    return weights


_remembered_weights = lru_cache(maxsize=256)(_weights)


def _q_value(text: bytes) -> float:
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if 0.0 <= value <= 1.0 else 0.0
