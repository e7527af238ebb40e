"""The protocol's own conformance suite, all of it, as it is published."""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
from support.node_program import HERE, MODULES
from support.server_process import ServerProcess

LANES = ("fast", "asgi")
TESTS = 338
#: The suite receives webhooks on this machine, and sends a preflight for a page of this origin.
SETTINGS: dict[str, object] = {"webhook_allow_loopback": True, "allowed_origins": "https://example.com"}
#: Most of the suite's time is waiting for streams to expire.
SUITE_SECONDS = 300.0


def test_the_conformance_suite_passes_over_both_lanes(packages: None, tmp_path: Path) -> None:
    # The suite waits most of the time, so it can wait for both at once.
    with ThreadPoolExecutor(len(LANES)) as threads:
        results = dict(zip(LANES, threads.map(lambda lane: _results(lane, tmp_path / lane), LANES), strict=True))
    failed = [(lane, each) for lane in LANES for each in results[lane] if each["status"] != "passed"]
    assert not failed, f"{len(failed)} failed:\n" + "\n".join(_told(lane, each) for lane, each in failed)
    assert {lane: len(results[lane]) for lane in LANES} == dict.fromkeys(LANES, TESTS)


def _results(lane: str, directory: Path) -> list[Any]:
    """What became of every test of the suite, against a server of its own."""
    directory.mkdir()
    server = ServerProcess(directory / "data", fast_lane=lane == "fast", settings=SETTINGS)
    try:
        report = _run(server.start().url, directory / "report.json")
    finally:
        server.end()
    return [result for file in report["testResults"] for result in file["assertionResults"]]


def _run(url: str, report: Path) -> Any:
    done = subprocess.run(
        [str(MODULES / ".bin" / "vitest"), "run", "--reporter=json", f"--outputFile={report}"],
        cwd=HERE,
        env={**os.environ, "SERVER_URL": url},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SUITE_SECONDS,
    )
    assert report.exists(), f"vitest ended with {done.returncode} and no report:\n{done.stdout}{done.stderr}"
    return msgspec.json.decode(report.read_bytes())


def _told(lane: str, result: Any) -> str:
    why = "".join(result["failureMessages"][:1]).partition("\n")[0]
    return f"  {lane}: {result['fullName']}: {result['status']}, {why}"
