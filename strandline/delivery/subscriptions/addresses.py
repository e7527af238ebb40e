"""Where webhooks may be sent: to the public internet over TLS, or in the clear to this very machine.

Checked twice. What can be seen in the URL is refused when the subscription is made; what a name turns out to mean is
checked whenever something is sent, and the connection is made to the address that was checked.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

import httpx

from strandline.delivery.subscriptions.errors import AddressRejected

MAX_URL = 2048

Address = IPv4Address | IPv6Address

_GLOBAL_UNICAST = IPv6Network("2000::/3")
#: What only stands for an IPv4 address: Teredo and 6to4.
_TUNNELS = (IPv6Network("2001::/32"), IPv6Network("2002::/16"))
#: What name resolution takes for an IPv4 address although it is not written like one: 2130706433, 0x7f.1, 127.1.
_NUMERIC = re.compile(r"(0[xX][0-9a-fA-F]*|[0-9]+)(\.(0[xX][0-9a-fA-F]*|[0-9]+))*", re.ASCII)


def parse_url(text: str) -> httpx.URL:
    """The address of a webhook; raises :class:`AddressRejected` where it shows that nothing may be sent there."""
    if len(text) > MAX_URL:
        raise AddressRejected(f"webhook.url has more than {MAX_URL} characters")
    try:
        url = httpx.URL(text)
    except (httpx.InvalidURL, ValueError):
        raise AddressRejected("webhook.url is not a valid URL") from None
    if url.scheme not in ("http", "https"):
        raise AddressRejected("webhook.url must use https")
    if not url.host:
        raise AddressRejected("webhook.url has no host")
    if url.userinfo:
        raise AddressRejected("webhook.url must not have a user name or a password")
    _check_host(url)
    return url


def is_allowed(url: httpx.URL, address: Address) -> bool:
    """Whether what is meant for this URL may be sent to this address, which its host's name stands for."""
    return address.is_loopback if url.scheme == "http" else is_public(address)


def is_public(address: Address) -> bool:
    """Neither this machine nor its neighbours, nor anything that only looks like an address of somebody else."""
    if isinstance(address, IPv6Address):
        if address not in _GLOBAL_UNICAST or any(address in tunnel for tunnel in _TUNNELS):
            return False
    return address.is_global and not (address.is_multicast or address.is_reserved)


def _check_host(url: httpx.URL) -> None:
    host = url.host.lower().rstrip(".")
    local_name = host == "localhost" or host.endswith(".localhost")
    address = _literal(host)
    if url.scheme == "http":
        if host != "localhost" and not (isinstance(address, IPv4Address) and address.is_loopback):
            raise AddressRejected("webhook.url must use https; http is for localhost and 127.0.0.x alone")
    elif local_name:
        raise AddressRejected("webhook.url must use http for localhost")
    elif address is not None:
        if not is_public(address):
            raise AddressRejected("webhook.url must not lead to a private, local or otherwise special address")
    elif _NUMERIC.fullmatch(host):
        raise AddressRejected("webhook.url has a host that is neither a name nor an address as they are written")


def _literal(host: str) -> Address | None:
    try:
        return ip_address(host.strip("[]"))
    except ValueError:
        return None
