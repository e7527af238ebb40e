"""Where webhooks may be sent: to the public internet over TLS and, if that is configured, to this machine or to
private networks.

Checked twice. What can be seen in the URL is refused when the subscription is made; what a name turns out to mean is
checked whenever something is sent, and the connection is made to the address that was checked.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

import httpx

from strandline.delivery.subscriptions.errors import AddressRejected

MAX_URL = 2048

Address = IPv4Address | IPv6Address

_GLOBAL_UNICAST = IPv6Network("2000::/3")
#: What only stands for an IPv4 address: Teredo and 6to4.
_TUNNELS = (IPv6Network("2001::/32"), IPv6Network("2002::/16"))
#: This machine, and networks that people run themselves. Link-local addresses are never among them: in a cloud, the
#: credentials of the machine are found there.
_PRIVATE = tuple(
    ip_network(network)
    for network in (
        "127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "::1/128", "fc00::/7",
    )
)  # fmt: skip
#: Addresses in private ranges where a cloud gives out the credentials of the machine.
_METADATA = frozenset((IPv4Address("100.100.100.200"), IPv6Address("fd00:ec2::254")))
_HOW_PRIVATE = "set streams.webhook_allow_private (STREAMS_WEBHOOK_ALLOW_PRIVATE=1) to allow that"
_HOW_LOOPBACK = "set streams.webhook_allow_loopback (STREAMS_WEBHOOK_ALLOW_LOOPBACK=1) to allow that"
#: What name resolution takes for an IPv4 address although it is not written like one: 2130706433, 0x7f.1, 127.1.
_NUMERIC = re.compile(r"(0[xX][0-9a-fA-F]*|[0-9]+)(\.(0[xX][0-9a-fA-F]*|[0-9]+))*", re.ASCII)


def parse_url(text: str, *, private: bool = False, loopback: bool = False) -> httpx.URL:
    """The address of a webhook; raises :class:`AddressRejected` where it shows that nothing may be sent there.
    ``private``: webhooks may go to this machine and to private networks. ``loopback``: to this machine."""
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
    _check_host(url, private, loopback or private)
    return url


def is_allowed(url: httpx.URL, address: Address, *, private: bool = False, loopback: bool = False) -> bool:
    """Whether what is meant for this URL may be sent to this address, which its host's name stands for."""
    if is_public(address):
        return url.scheme == "https"
    return is_private(address) and (private or (loopback and address.is_loopback))


def is_private(address: Address) -> bool:
    """This machine or a private network; nothing that only stands for one, and no place with credentials."""
    return address not in _METADATA and any(address in network for network in _PRIVATE)


def is_public(address: Address) -> bool:
    """Neither this machine nor its neighbours, nor anything that only looks like an address of somebody else."""
    if isinstance(address, IPv6Address):
        if address not in _GLOBAL_UNICAST or any(address in tunnel for tunnel in _TUNNELS):
            return False
    return address.is_global and not (address.is_multicast or address.is_reserved)


def _check_host(url: httpx.URL, private: bool, loopback: bool) -> None:
    host = url.host.lower().rstrip(".")
    is_local = host == "localhost" or host.endswith(".localhost")
    address = _literal(host)
    if address is None and _NUMERIC.fullmatch(host):
        raise AddressRejected("webhook.url has a host that is neither a name nor an address as they are written")
    if is_local or (address is not None and address.is_loopback and is_private(address)):
        if not loopback:
            raise AddressRejected(f"webhook.url leads to this machine; {_HOW_LOOPBACK}")
    elif address is not None and is_private(address):
        if not private:
            raise AddressRejected(f"webhook.url leads to a private network; {_HOW_PRIVATE}")
    elif address is not None and not is_public(address):
        raise AddressRejected("webhook.url must not lead to a link-local, multicast or otherwise special address")
    elif url.scheme == "http" and (address is not None or not private):
        raise AddressRejected("webhook.url must use https; http is for this machine and private networks alone")


def _literal(host: str) -> Address | None:
    try:
        return ip_address(host.strip("[]"))
    except ValueError:
        return None
