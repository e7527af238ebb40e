from __future__ import annotations

import asyncio
import os
from pathlib import Path

import msgspec
import pytest
from support.signed_calls import ALICE, BOB, device

from strandline.collections.revocation_files import CHECK_SECONDS, BadRevocationFile, RevocationFiles
from strandline.signing.revocations import signed_list


def write(path: Path, *documents: object) -> None:
    path.write_bytes(msgspec.json.encode(documents[0] if len(documents) == 1 else documents))
    # Whether the time of a file differs from one moment to the next depends on the disk.
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1_000_000))


def test_what_a_list_revokes_is_revoked(tmp_path: Path) -> None:
    cert, other = device(), device()
    write(tmp_path / "list.json", signed_list(ALICE, 1, [cert]))
    files = RevocationFiles([str(tmp_path / "list.json")])
    files.load()
    assert files.list.is_revoked(cert)
    assert not files.list.is_revoked(other)


def test_a_file_may_hold_the_lists_of_several_issuers(tmp_path: Path) -> None:
    certs = [device(), device(BOB, BOB)]
    write(tmp_path / "lists.json", signed_list(ALICE, 1, [certs[0]]), signed_list(BOB, 1, [certs[1]]))
    files = RevocationFiles([str(tmp_path / "lists.json")])
    files.load()
    assert all(files.list.is_revoked(cert) for cert in certs)


def test_a_file_that_changes_is_read_again_without_a_request(tmp_path: Path) -> None:
    path, cert = tmp_path / "list.json", device()
    write(path, signed_list(ALICE, 1))
    files = RevocationFiles([str(path)])
    files.load()
    write(path, signed_list(ALICE, 2, [cert]))
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(files.watch(asyncio.to_thread, sleep))
    assert files.list.is_revoked(cert)
    assert pauses == [CHECK_SECONDS, CHECK_SECONDS]


def test_a_file_that_has_not_changed_is_not_read_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "list.json"
    write(path, signed_list(ALICE, 1))
    files = RevocationFiles([str(path)])
    files.load()
    status = path.stat()
    path.write_bytes(b"x" * status.st_size)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    files.check()
    assert not caplog.text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"nonsense", "is not valid JSON"),
        (b"{}", "malformed-shape"),
        (b"[1]", "malformed-shape"),
        (msgspec.json.encode({**signed_list(ALICE, 1), "generation": 2}), "bad-signature"),
    ],
)
def test_a_file_that_makes_no_sense_is_an_error_at_the_start(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "list.json"
    path.write_bytes(content)
    with pytest.raises(BadRevocationFile, match=message) as caught:
        RevocationFiles([str(path)]).load()
    assert str(path) in str(caught.value)
    with pytest.raises(BadRevocationFile, match="cannot read"):
        RevocationFiles([str(tmp_path / "absent")]).load()


def test_a_file_that_makes_no_sense_later_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, cert = tmp_path / "list.json", device()
    write(path, signed_list(ALICE, 3, [cert]))
    files = RevocationFiles([str(path)])
    files.load()
    path.write_bytes(b"half a li")
    files.check()
    assert files.list.is_revoked(cert)
    assert "the previous list stays in force" in caplog.text
    write(path, signed_list(ALICE, 2))
    files.check()
    assert files.list.is_revoked(cert), "nor does an older list"
    assert "generation 2, and generation 3 of the same issuer is in force" in caplog.text
