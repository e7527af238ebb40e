"""Servers for the tests of other programs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.document_tables import ROOT

from strandline.client import Client, Forbidden, NotAuthenticated
from strandline.testing import LocalServer, ServerFailed

PAGE = ROOT / "docs" / "how-to" / "test-a-program.md"


def test_a_server_is_stopped_killed_and_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A setting of the environment that a server would refuse.
    monkeypatch.setenv("STRANDLINE_NOTHING", "1")
    monkeypatch.setenv("STRANDLINE_MAX_BATCH_RECORDS", "1")
    with LocalServer(tmp_path / "data", api_keys="secret", fast_lane=False) as server:
        port = server.port
        with server.client("secret") as client:
            client.topic("orders").write_many([1, 2])
            server.kill()
            assert not server.running
            server.start()
            client.topic("orders").write(3)
            assert client.topic("orders").state().count == 3
        with server.client() as client, pytest.raises((NotAuthenticated, Forbidden)):
            client.topic("orders").state()
        assert server.running
        assert server.port == port
        with pytest.raises(ServerFailed, match="already started"):
            server.start()
    assert not server.running
    with pytest.raises(ServerFailed, match="not started"):
        server.kill()
    with Client(server.url, patience=0) as client:
        assert not client.ready()


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="unknown setting 'max_batch_recods'; did you mean 'max_batch_records'"):
        LocalServer(tmp_path / "data", max_batch_recods=1).start()
    server = LocalServer(tmp_path / "data", max_batch_records="many")
    with pytest.raises(ServerFailed, match=r"exit code 2 instead of starting:\n(.|\n)*expected a whole number"):
        server.start()
    assert not server.running


def test_the_fixtures_work_as_the_guide_shows(tmp_path: Path) -> None:
    for name, program in re.findall(r"```python\n# (\S+)\n(.*?)```", PAGE.read_text(), re.DOTALL):
        (tmp_path / name).write_text(program)
    assert {path.name for path in tmp_path.iterdir()} == {"conftest.py", "test_orders.py"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp", str(tmp_path / "temporary")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines()[-1].startswith("3 passed"), done.stdout + done.stderr
