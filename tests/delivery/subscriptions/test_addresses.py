from __future__ import annotations

from ipaddress import ip_address

import httpx
import pytest

from strandline.delivery.subscriptions.errors import AddressRejected
from strandline.delivery.subscriptions.webhooks import is_allowed, is_public, parse_url


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com/hook",
        "https://example.com:8443/hook?x=1",
        "https://93.184.216.34/",
        "https://[2606:2800:220:1::1]/",
    ],
)
def test_public_addresses_over_tls_are_allowed(url: str) -> None:
    assert str(parse_url(url)) == url
    assert str(parse_url(url, private=True)) == url


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:9000/hook",
        "http://127.0.0.1:9000",
        "http://127.0.0.53/hook",
        "http://[::1]/",
        "https://localhost/",
        "https://api.localhost/",
    ],
)
def test_this_machine_needs_a_setting(url: str) -> None:
    with pytest.raises(AddressRejected, match="STRANDLINE_WEBHOOK_ALLOW_LOOPBACK"):
        parse_url(url)
    assert str(parse_url(url, loopback=True)) == url
    assert str(parse_url(url, private=True)) == url


@pytest.mark.parametrize(
    "url",
    [
        "http://10.0.0.1/hook",
        "http://192.168.1.1/",
        "https://172.16.0.1/",
        "https://100.64.0.1/",
        "https://[fd00::1]/",
    ],
)
@pytest.mark.parametrize("loopback", [False, True])
def test_private_networks_need_a_setting_of_their_own(url: str, loopback: bool) -> None:
    with pytest.raises(AddressRejected, match="STRANDLINE_WEBHOOK_ALLOW_PRIVATE"):
        parse_url(url, loopback=loopback)
    assert str(parse_url(url, private=True)) == url


@pytest.mark.parametrize(
    "url",
    [
        "http://93.184.216.34/",
        "http://169.254.169.254/latest/meta-data",
        "http://100.100.100.200/latest/meta-data",
        "http://[fd00:ec2::254]/",
        "http://0.0.0.0/",
        "http://[::]/",
        "http://224.0.0.1/",
        "http://[::ffff:127.0.0.1]/",
        "http://2130706433/",
    ],
)
def test_the_setting_does_not_allow_everything(url: str) -> None:
    with pytest.raises(AddressRejected):
        parse_url(url, private=True)


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


@pytest.mark.parametrize(
    ("scheme", "address", "private", "allowed"),
    [
        ("https", "93.184.216.34", False, True),
        ("https", "127.0.0.1", False, False),
        ("https", "10.0.0.1", True, True),
        ("http", "127.0.0.1", False, False),
        ("http", "127.0.0.1", True, True),
        ("http", "::1", True, True),
        ("http", "93.184.216.34", True, False),
        ("http", "169.254.169.254", True, False),
        ("https", "fd00:ec2::254", True, False),
    ],
)
def test_what_a_name_may_stand_for(scheme: str, address: str, private: bool, allowed: bool) -> None:
    assert is_allowed(httpx.URL(f"{scheme}://hooks.example/"), ip_address(address), private=private) == allowed


@pytest.mark.parametrize(("address", "allowed"), [("127.0.0.1", True), ("::1", True), ("10.0.0.1", False)])
def test_a_name_may_stand_for_this_machine_alone(address: str, allowed: bool) -> None:
    assert is_allowed(httpx.URL("http://localhost/"), ip_address(address), loopback=True) == allowed
