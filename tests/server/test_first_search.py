"""The first search of a process does not wait for imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support.document_tables import ROOT
from support.real_server import RealServer
from support.searched_log import DECLARED as SEARCH
from support.tables_client import TablesClient

#: A table with search.
DECLARED = """
from strandline.tables import make_log

vote = make_log("vote", parent="poll", schema={"type": "object"}, pub=True, search="comment")
"""
START = 1_767_225_600_000
RECORDS = [{"at": START + number, "service": "api", "status": 200, "took": 5, "note": "red"} for number in range(2)]


def test_requests_import_nothing(tmp_path: Path) -> None:
    with RealServer(tmp_path, declared=DECLARED) as server:
        client = server.client()
        stream = "/v1/stream/requests"
        client.request("PUT", stream, headers={"content-type": "application/json"})
        client.call("POST", f"{stream}/_schema", {"schema": {"type": "object"}, "search": SEARCH})
        assert client.request("POST", stream, RECORDS).status_code == 204
        TablesClient(server.url, "ann").append("vote", "p", {"comment": "red"})

    with RealServer(tmp_path, declared=DECLARED) as server:
        client = server.client()
        server.forget_imports()
        assert len(client.call("POST", f"{stream}/_search", {"q": "note:red"})["hits"]) == 2
        asked = {"rollup": "requests", "interval": "1m", "from": START, "to": START + 60_000}
        assert len(client.call("POST", f"{stream}/_aggregate", asked)["buckets"]) == 1
        assert len(client.call("GET", f"{stream}?offset=-1&format=json&filter=service:api")) == 2
        rows, _ = TablesClient(server.url, "ann").found("vote", parent="p", query="red")
        assert len(rows) == 1
        assert server.imports() == []


IN_PROCESS = """
import sys
from pathlib import Path

from support.searched_log import bed

from strandline import arrow

arrow.prepare()
known = set(sys.modules)
with bed(Path(sys.argv[1])) as logs:
    logs.append({"at": 0, "service": "api", "status": 200, "took": 5, "note": "red"})
    assert logs.seqs("red") == [1]
    assert logs.aggregate(**{"rollup": "requests", "from": 0, "to": 60_000, "interval": "1m"}).buckets
print(sorted({name.partition(".")[0] for name in sys.modules.keys() - known}), "duckdb" in sys.modules)
"""


def test_few_records_need_neither_duckdb_nor_imports(tmp_path: Path) -> None:
    command = [sys.executable, "-c", IN_PROCESS, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT / "tests", timeout=120)
    assert (done.stdout.strip(), done.stderr) == ("[] False", "")
