"""The protocol's own conformance suite, all of it, as it is published."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import msgspec
from conformance.node_program import HERE, MODULES
from server_process import ServerProcess

TESTS = 338
#: Most of the suite's time is waiting for streams to expire.
SUITE_SECONDS = 300.0


def test_the_conformance_suite_passes(server: ServerProcess, tmp_path: Path) -> None:
    report = _run(server.url, tmp_path / "report.json")
    results = [result for file in report["testResults"] for result in file["assertionResults"]]
    failed = [result for result in results if result["status"] != "passed"]
    assert not failed, f"{len(failed)} of {len(results)} failed:\n" + "\n".join(map(_told, failed))
    assert len(results) == TESTS


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


def _told(result: Any) -> str:
    why = "".join(result["failureMessages"][:1]).partition("\n")[0]
    return f"  {result['fullName']}: {result['status']}, {why}"
