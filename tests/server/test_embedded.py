"""A program that starts the server itself, with what it declares."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep

import httpx
from support.server_process import START_SECONDS, STOP_SECONDS

from strandline.server.settings import VARIABLES

PROGRAM = """
import sys

from strandline.server import serve
from strandline.tables import make_log

note = make_log("note", parent="desk", schema={"type": "object"}, pub=True)
sys.exit(serve(tables=[note], identify=lambda headers: "me", port=0, data="data", port_file="port"))
"""


def test_a_program_serves_its_own_tables(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "program.py"],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        url = f"http://{_address(tmp_path, process)}"
        with httpx.Client(base_url=url, trust_env=False, verify=False, timeout=30) as client:
            deadline = monotonic() + START_SECONDS
            while not client.get("/v0/ready").is_success and monotonic() < deadline:
                sleep(0.01)
            answer = client.post("/tables/note/append", json={"parent": "d", "payload": {"a": 1}})
            assert answer.json() == {"seq": 1, "created": True, "id": "d:1"}
            (row,) = client.get("/tables/note/pub/list?parent=d").json()["page"]
            assert row["userId"] == "me"
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOP_SECONDS) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _address(directory: Path, process: subprocess.Popen[bytes]) -> str:
    deadline = monotonic() + START_SECONDS
    while not (directory / "port").exists():
        assert process.poll() is None, (directory / "log").read_text()
        assert monotonic() < deadline, (directory / "log").read_text()
        sleep(0.01)
    return (directory / "port").read_text().strip()
