"""A change of a log's schema or fields is tried before it is installed."""

from __future__ import annotations

from typing import Any

import pytest
from support.console_in_process import ConsoleStand

from strandline.protocols.console import dry_runs

API = "/console/api/log"
SEARCH = {
    "fields": {"ms": {"kind": "integer", "column": True, "bindings": [{"version": 1, "jsonPointer": "/ms"}]}},
}


def trial(stand: ConsoleStand, log: str, update: Any, **options: Any) -> Any:
    answered = stand.ask("POST", f"{API}/{log}/dry-run", update, **options)
    assert answered.status == 200, answered
    return answered.json


def test_an_update_is_tried_and_nothing_is_installed(stand: ConsoleStand) -> None:
    stand.log("shop/requests", *({"ms": number} for number in range(10)), {"ms": "soon"})
    notes = dict(stand.engine.log("shop/requests").notes)
    found = trial(stand, "shop/requests", {"search": SEARCH})
    assert (found["refused"], found["records"], found["complete"]) == (None, 11, True)
    assert found["installed"] == {}
    assert found["proposed"] == {"search": SEARCH}
    assert found["fields"][0]["records"] == 10
    assert found["fields"][0]["unfit_examples"] == [{"seq": 11, "value": "soon"}]
    assert dict(stand.engine.log("shop/requests").notes) == notes
    answered = stand.ask("POST", f"{API}/shop/requests/dry-run?limit=2", {"search": SEARCH}).json
    assert (answered["first_seq"], answered["last_seq"]) == (10, 11)


def test_a_record_that_is_rejected_here_is_rejected_by_the_log(stand: ConsoleStand) -> None:
    stand.stream("visits", "application/json", b'[{"ms":1},{"ms":"2"}]')
    schema = {"type": "object", "properties": {"ms": {"type": "integer"}}}
    found = trial(stand, "visits", {"schema": schema})
    assert found["refused"] == "first schema requires empty stream"
    (rejected,) = found["rejections"]
    assert rejected["seq"] == 2
    stand.stream("checked", "application/json")
    assert trial(stand, "checked", {"schema": schema})["refused"] is None
    installed = stand.ask("POST", "/v1/stream/checked/_schema", {"schema": schema})
    assert installed.status == 200, installed
    refused = stand.ask("POST", "/v1/stream/checked", b'[{"ms":"2"}]', content_type="application/json")
    assert rejected["message"] in refused.json["error"]["message"]


def test_it_ends_when_the_time_is_over(stand: ConsoleStand, monkeypatch: pytest.MonkeyPatch) -> None:
    stand.log("requests", {"ms": 1})
    monkeypatch.setattr(dry_runs, "MAX_SECONDS", 0.0)
    found = trial(stand, "requests", {"search": SEARCH})
    assert (found["records"], found["complete"]) == (0, False)


def test_what_cannot_be_tried_is_refused(stand: ConsoleStand) -> None:
    stand.log("requests", {"ms": 1})
    stand.stream("text", "text/plain", b"hello")

    def refused(log: str, body: Any, **options: Any) -> tuple[int, str]:
        return stand.ask("POST", f"{API}/{log}/dry-run", body, **options).error

    assert refused("nothing", {"search": SEARCH}) == (404, "log_not_found")
    assert refused("text", {"search": SEARCH}) == (400, "invalid_request")
    assert refused("requests", b"{") == (400, "invalid_request")
    assert refused("requests", {"search": {"fields": 1}}) == (400, "invalid_request")
    assert stand.ask("POST", f"{API}/requests/dry-run?limit=99999", {"search": SEARCH}).status == 400


def test_an_api_key_that_reads_may_try(tmp_path: Any) -> None:
    with ConsoleStand(tmp_path / "data", keys="secret-reader:read,secret-writer:write") as stand:
        stand.log("requests", {"ms": 1})
        assert trial(stand, "requests", {"search": SEARCH}, key="secret-reader")["records"] == 1
        assert stand.ask("POST", f"{API}/requests/dry-run", {"search": SEARCH}, key="secret-writer").status == 403
        assert stand.ask("POST", f"{API}/requests/dry-run", {"search": SEARCH}).status == 401
