"""Hosts, origins and CORS: which host names and web pages may use the server.

A browser lets any web page send requests to any address, including addresses of this machine. A server without API keys
cannot distinguish such a request from one of its user. Therefore it checks headers that the browser sets and pages
cannot change: ``Host`` (an attacker's name stays the attacker's name even if its DNS record points at this machine),
``Origin`` (the origin of the page) and ``Sec-Fetch-Site`` (whether the page belongs to another site). With API keys, a
page would have to know a key, so nothing is refused here. The same rule decides which pages of other origins may read
answers.

Everything here depends only on the head of a request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from strandline.service.http import Cors, Head, Route
from strandline.service.problems import FORBIDDEN, Headers, Refusal

EVERY = "*"
LOCALHOST = "localhost"
#: Headers in which a proxy describes the client. They are dropped unless the proxy is trusted.
FORWARDED = (b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto")
#: Quoted values in messages are truncated to the length of the longest host name.
_QUOTED_CHARS = 253

_VARY = (b"vary", b"origin")
_FOR_EVERY_PAGE = (b"cross-origin-resource-policy", b"cross-origin")
_FOR_OWN_PAGES = (b"cross-origin-resource-policy", b"same-origin")


class Origins:
    """The rules of one server.

    ``listen_host`` is the address that the server listens on. A name in ``hosts`` is exact, or starts with ``*.`` for
    all subdomains; ``*`` allows every name or origin. If ``keyed``, no request is refused.
    """

    def __init__(
        self,
        *,
        keyed: bool,
        listen_host: str = LOCALHOST,
        hosts: Iterable[str] = (),
        origins: Iterable[str] = (),
        proxies: Iterable[str] = (),
    ) -> None:
        self._keyed = keyed
        names = [name.lower() for name in (LOCALHOST, listen_host, *hosts)]
        self._hosts = frozenset(names)
        self._parents = tuple(name[1:] for name in names if name.startswith("*."))
        self._origins = frozenset(origin.lower() for origin in origins)
        self._proxies = tuple(ip_network(proxy, strict=False) for proxy in proxies)

    # --- proxies ---------------------------------------------------------------------------------------------------

    def trusts(self, peer: str) -> bool:
        """Whether the other end of a connection is a trusted proxy."""
        return bool(self._proxies) and _is_in(peer, self._proxies)

    @staticmethod
    def drop_forwarded(headers: dict[bytes, bytes]) -> None:
        """Remove the headers that only a trusted proxy may send."""
        for name in FORWARDED:
            headers.pop(name, None)

    # --- one request -----------------------------------------------------------------------------------------------

    def check(self, head: Head, cors: Cors | None = None) -> None:
        """Raise :class:`Refusal` if the host, or the page that sent the request, is not allowed. ``cors`` belongs to
        the path."""
        if self._keyed:
            return
        headers, route = head.headers, head.route
        host = _host(headers)
        if host and not self._knows_host(host):
            raise _bad_host(host)
        origin = headers.get(b"origin")
        if origin is not None:
            if not self._knows_origin(origin, host, cors):
                raise _bad_origin(origin)
        elif _is_foreign(headers, host) and not _is_for_everyone(route):
            raise _bad_site()

    def headers(self, head: Head, route: Route) -> Headers:
        """The headers of the route and the CORS headers, for every reply to the request. ``route`` is the route of the
        request, or another one at the same path."""
        cors = route.cors
        if cors is None:
            return route.headers
        every = EVERY in self._origins or EVERY in cors.origins
        origin = head.headers.get(b"origin")
        known = origin is not None and self._knows_origin(origin, _host(head.headers), cors)
        headers = route.headers
        if every:
            headers += ((b"access-control-allow-origin", b"*"), cors.exposed, _FOR_EVERY_PAGE)
        elif known and origin is not None:
            headers += ((b"access-control-allow-origin", origin), cors.exposed, _FOR_OWN_PAGES, _VARY)
        else:
            headers += (_FOR_OWN_PAGES, _VARY)
        if head.method == "OPTIONS" and head.route is not None and (every or known or origin is None):
            headers += cors.preflight
        return headers

    def _knows_host(self, host: str) -> bool:
        name = _name(host)
        if name in self._hosts or host in self._hosts or EVERY in self._hosts:
            return True
        # An address needs no DNS lookup, so an attacker cannot redirect it to this machine.
        return _is_address(name) or (bool(self._parents) and name.endswith(self._parents))

    def _knows_origin(self, origin: bytes, host: str, cors: Cors | None) -> bool:
        text = origin.decode("latin-1").lower()
        if text in self._origins or EVERY in self._origins:
            return True
        if cors is not None and (text in cors.origins or EVERY in cors.origins):
            return True
        _, _, place = text.partition("://")
        # A page of this server, or of another server on the user's machine.
        own = place == host and (self._keyed or self._knows_host(host))
        return bool(place) and (own or _is_loopback(_name(place)))


def _is_foreign(headers: Mapping[bytes, bytes], host: str) -> bool:
    """Whether a page of another site sent the request, according to Sec-Fetch-Site."""
    site = headers.get(b"sec-fetch-site")
    return site == b"cross-site" or (site == b"same-site" and not _is_loopback(_name(host)))


def _is_for_everyone(route: Route | None) -> bool:
    """Whether pages of any site may link to the route. Public files, such as those of the console, contain no data."""
    return route is not None and route.public and route.method == "GET"


def _host(headers: Mapping[bytes, bytes]) -> str:
    """The host and port of the request; empty if it names none."""
    host = headers.get(b"x-forwarded-host", headers.get(b"host", b"")).partition(b",")[0]
    return host.strip().decode("latin-1").lower()


def _name(host: str) -> str:
    """The host without port, brackets and trailing dot."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _is_loopback(name: str) -> bool:
    return name == LOCALHOST or (_is_address(name) and ip_address(name).is_loopback)


def _is_in(peer: str, networks: tuple[IPv4Network | IPv6Network, ...]) -> bool:
    try:
        address = ip_address(peer)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return any((mapped or address) in network for network in networks)


def _bad_host(host: str) -> Refusal:
    name = _name(host)[:_QUOTED_CHARS]
    return Refusal(
        FORBIDDEN,
        f"the host {name!r} is not allowed: a server without API keys accepts only localhost, addresses and the names "
        f"in server.allowed_hosts. If this is the server's name, set STRANDLINE_ALLOWED_HOSTS={name} or configure API "
        "keys",
        {"setting": "allowed_hosts", "host": name},
    )


def _bad_origin(origin: bytes) -> Refusal:
    text = origin.decode("latin-1")[:_QUOTED_CHARS]
    return Refusal(
        FORBIDDEN,
        f"the origin {text!r} is not allowed: a server without API keys accepts only requests of its own pages, of "
        "pages of this machine and of the origins in server.allowed_origins. If you trust the page, set "
        f"STRANDLINE_ALLOWED_ORIGINS={text}",
        {"setting": "allowed_origins", "origin": text},
    )


def _bad_site() -> Refusal:
    return Refusal(
        FORBIDDEN,
        "a page of another site sent this request without an Origin header: a server without API keys accepts such a "
        "request only with an Origin that is in server.allowed_origins (STRANDLINE_ALLOWED_ORIGINS). Use fetch() or "
        "the attribute crossorigin, or open the address directly",
        {"setting": "allowed_origins"},
    )
