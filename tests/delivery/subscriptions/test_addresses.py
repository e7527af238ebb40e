from __future__ import annotations

from ipaddress import ip_address

import pytest

from strandline.delivery.subscriptions.addresses import is_allowed, is_public, parse_url
from strandline.delivery.subscriptions.errors import AddressRejected


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com/hook",
        "https://example.com:8443/hook?x=1",
        "https://93.184.216.34/",
        "https://[2606:2800:220:1::1]/",
        "http://localhost:9000/hook",
        "http://127.0.0.1:9000",
        "http://127.0.0.53/hook",
    ],
)
def test_public_addresses_over_tls_and_this_machine_in_the_clear_are_allowed(url: str) -> None:
    assert str(parse_url(url)) == url


@pytest.mark.parametrize(
    "url",
    [
        "",
        "nonsense",
        "ftp://example.com/",
        "file:///etc/passwd",
        "https://",
        "http://example.com/hook",
        "http://10.0.0.1/hook",
        "http://192.168.1.1/",
        "http://[::1]/",
        "https://localhost/",
        "https://localhost./",
        "https://api.localhost/",
        "https://127.0.0.1/",
        "https://10.1.2.3/",
        "https://172.16.0.1/",
        "https://192.168.0.1/",
        "https://169.254.169.254/latest/meta-data",
        "https://100.64.0.1/",
        "https://0.0.0.0/",
        "https://224.0.0.1/",
        "https://255.255.255.255/",
        "https://[::]/",
        "https://[::1]/",
        "https://[fe80::1]/",
        "https://[fd00::1]/",
        "https://[::ffff:10.0.0.1]/",
        "https://[64:ff9b::a00:1]/",
        "https://[2002:a00:1::]/",
        "https://2130706433/",
        "https://0x7f000001/",
        "https://127.1/",
        "https://user:secret@example.com/",
        "https://example.com/" + "x" * 3000,
    ],
)
def test_everything_else_is_rejected(url: str) -> None:
    with pytest.raises(AddressRejected):
        parse_url(url)


@pytest.mark.parametrize("address", ["10.0.0.1", "127.0.0.1", "169.254.169.254", "::1", "fe80::1", "::ffff:8.8.8.8"])
def test_what_a_name_stands_for_is_checked_too(address: str) -> None:
    assert not is_allowed(parse_url("https://innocent.example/"), ip_address(address))
    assert not is_public(ip_address(address))


def test_localhost_must_be_this_machine() -> None:
    url = parse_url("http://localhost/")
    assert is_allowed(url, ip_address("127.0.0.1"))
    assert is_allowed(url, ip_address("::1"))
    assert not is_allowed(url, ip_address("93.184.216.34"))
