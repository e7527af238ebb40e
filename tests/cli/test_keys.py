from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.command_line import Cli
from support.server_process import ServerProcess

ROOT = "root-secret"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path_factory.mktemp("cli-keys") / "data", keys=ROOT)
    try:
        yield process.start()
    finally:
        process.end()


def test_a_key_is_added_used_rotated_and_revoked(guarded: ServerProcess) -> None:
    cli = Cli(guarded.url)
    as_root = ("--api-key", ROOT)
    cli.lines("log", "append", "orders", "1", *as_root)
    scopes = ("--scope", "read", "--scope", "write")
    made = cli.json("keys", "add", *scopes, "--prefix", "orders", "--name", "shop", "--expires-in", "30d", *as_root)
    shop, secret = made["key"]["id"], made["secret"]
    assert cli.rows("log", "tail", "orders", "--api-key", secret)
    rows = cli.words("keys", "ls", *as_root)
    assert rows[0] == ["id", "name", "scopes", "prefixes", "source", "expires"]
    assert [row[:5] for row in rows if row[0] == shop] == [[shop, "shop", "read+write", "orders", "added"]]
    rotated = cli.lines("keys", "rotate", shop, "--keep", "1h", *as_root)
    fields = dict(line.split(maxsplit=1) for line in rotated)
    assert fields["replaces"].startswith(f"{shop}, which ends at ")
    assert cli.rows("log", "tail", "orders", "--api-key", fields["secret"])
    assert cli.lines("keys", "revoke", shop, *as_root) == [f"revoked API key {shop}"]
    cli.fails(5, "log", "tail", "orders", "--api-key", secret)
    assert cli.rows("log", "tail", "orders", "--api-key", fields["secret"])
    message = f"strandline: API key '{shop}' not found; list the names with `strandline keys ls`"
    assert cli.fails(3, "keys", "revoke", shop, *as_root) == message


def test_a_wrong_scope_is_refused(guarded: ServerProcess) -> None:
    assert "invalid value 'all' in scopes[0]" in Cli(guarded.url).fails(
        2, "keys", "add", "--scope", "all", "--api-key", ROOT
    )
