"""Where a request comes from, as far as that can be known."""

from __future__ import annotations

from strandline.faces.web import Call


def address_of(call: Call, trusted_proxy_hops: int) -> str:
    """The address of the client; empty if it is unknown.

    What a client writes into ``X-Forwarded-For`` itself must not count: it is the entry that the outermost of the
    trusted proxies has added, the so-manieth from the right. A header with fewer entries did not come through them.
    """
    if trusted_proxy_hops:
        forwarded = call.head.headers.get(b"x-forwarded-for", b"").decode("latin-1")
        hops = [hop.strip() for hop in forwarded.split(",") if hop.strip()]
        if len(hops) >= trusted_proxy_hops:
            return hops[-trusted_proxy_hops]
    return call.peer
