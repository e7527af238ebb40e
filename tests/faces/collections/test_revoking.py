from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from signed_calls import ALICE, BOB, NOW, device

from strandline.faces.collections.revoking import LOOK_MS, BadRevocationFile, RevocationFiles
from strandline.signing.revocations import signed_list


def write(path: Path, *documents: object) -> None:
    path.write_bytes(msgspec.json.encode(documents[0] if len(documents) == 1 else documents))
    # Whether the time of a file differs from one moment to the next depends on the disk.
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1_000_000))


def test_what_a_list_revokes_is_revoked(tmp_path: Path) -> None:
    cert, other = device(), device()
    write(tmp_path / "list.json", signed_list(ALICE, 1, [cert]))
    files = RevocationFiles([str(tmp_path / "list.json")])
    files.load(NOW)
    assert files.list.is_revoked(cert)
    assert not files.list.is_revoked(other)


def test_a_file_may_hold_the_lists_of_several_issuers(tmp_path: Path) -> None:
    certs = [device(), device(BOB, BOB)]
    write(tmp_path / "lists.json", signed_list(ALICE, 1, [certs[0]]), signed_list(BOB, 1, [certs[1]]))
    files = RevocationFiles([str(tmp_path / "lists.json")])
    files.load(NOW)
    assert all(files.list.is_revoked(cert) for cert in certs)


def test_a_file_that_changes_is_read_again_but_not_at_every_moment(tmp_path: Path) -> None:
    path, cert = tmp_path / "list.json", device()
    write(path, signed_list(ALICE, 1))
    files = RevocationFiles([str(path)])
    files.load(NOW)
    write(path, signed_list(ALICE, 2, [cert]))
    files.refresh(NOW + LOOK_MS - 1)
    assert not files.list.is_revoked(cert)
    files.refresh(NOW + LOOK_MS)
    assert files.list.is_revoked(cert)


def test_a_file_that_has_not_changed_is_not_read_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, looks = tmp_path / "list.json", list[Callable[[], None]]()
    write(path, signed_list(ALICE, 1))
    files = RevocationFiles([str(path)], run=looks.append)
    files.load(NOW)
    files.refresh(NOW + LOOK_MS)
    files.refresh(NOW + LOOK_MS + 1)
    assert len(looks) == 1, "a look is somebody else's work"
    status = path.stat()
    path.write_bytes(b"x" * status.st_size)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    looks[0]()
    assert not caplog.text


def test_files_are_looked_at_also_when_the_clock_was_turned_back(tmp_path: Path) -> None:
    path, cert = tmp_path / "list.json", device()
    write(path, signed_list(ALICE, 1))
    files = RevocationFiles([str(path)])
    files.load(NOW)
    write(path, signed_list(ALICE, 2, [cert]))
    files.refresh(NOW - 1_000_000)
    assert files.list.is_revoked(cert)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"nonsense", "is not JSON"),
        (b"{}", "malformed-shape"),
        (b"[1]", "malformed-shape"),
        (msgspec.json.encode({**signed_list(ALICE, 1), "generation": 2}), "bad-signature"),
    ],
)
def test_a_file_that_makes_no_sense_is_an_error_at_the_start(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "list.json"
    path.write_bytes(content)
    with pytest.raises(BadRevocationFile, match=message) as caught:
        RevocationFiles([str(path)]).load(NOW)
    assert str(path) in str(caught.value)
    with pytest.raises(BadRevocationFile, match="cannot read"):
        RevocationFiles([str(tmp_path / "absent")]).load(NOW)


def test_a_file_that_makes_no_sense_later_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, cert = tmp_path / "list.json", device()
    write(path, signed_list(ALICE, 3, [cert]))
    files = RevocationFiles([str(path)])
    files.load(NOW)
    path.write_bytes(b"half a li")
    files.refresh(NOW + LOOK_MS)
    assert files.list.is_revoked(cert)
    assert "what it said before still holds" in caplog.text
    write(path, signed_list(ALICE, 2))
    files.refresh(NOW + 2 * LOOK_MS)
    assert files.list.is_revoked(cert), "nor does an older list"
