"""A shop's logs for the console to show, and what tests do to them over HTTP."""

from __future__ import annotations

from itertools import count, pairwise
from typing import Any

import httpx

#: Names of logs are never used twice, so tests share a server and not what is in it.
numbers = count(1)

FIELDS = {
    "at": {"kind": "date", "exact": True, "column": True, "sortable": True},
    "service": {"kind": "keyword", "exact": True, "prefix": True},
    "ms": {"kind": "integer", "column": True, "sortable": True, "aggregatable": True},
    "message": {"kind": "text", "analyzer": "unicode_word_v1", "positions": True},
}
SEARCH: dict[str, Any] = {
    "primaryTimestampField": "at",
    "defaultFields": [{"field": "message"}],
    "fields": {
        name: {**field, "bindings": [{"version": 1, "jsonPointer": f"/{name}"}]} for name, field in FIELDS.items()
    },
    "rollups": {
        "load": {
            "dimensions": ["service"],
            "intervals": ["1m", "1h"],
            "measures": {"requests": {"kind": "count"}, "ms": {"kind": "summary", "field": "ms"}},
        }
    },
}

#: What the client's worker sends for an exception.
EXCEPTION = {
    "type": "smtplib.SMTPRecipientsRefused",
    "message": "{'nobody@example.com': (550, b'5.1.1 The email account that you tried to reach does not exist')}",
    "traceback": 'Traceback (most recent call last):\n  File "worker.py", line 7, in send\n    smtp.send_message(mail)',
}


class Shop:
    """Calls to one server, as somebody with a key if there are keys."""

    def __init__(self, url: str, key: str | None = None) -> None:
        self.url = url
        headers = {"authorization": f"Bearer {key}"} if key else {}
        self._client = httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=60)

    def close(self) -> None:
        self._client.close()

    def call(self, method: str, path: str, json: Any = None, **options: Any) -> Any:
        answer = self._client.request(method, path, json=json, **options)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def status(self, key: str) -> int:
        """How the server answers to another key."""
        return self._client.get("/v0/topics", headers={"authorization": f"Bearer {key}"}).status_code

    def name(self, word: str) -> str:
        return f"{word}-{next(numbers)}"

    # --- logs ------------------------------------------------------------------------------------------------------

    def topic(self, word: str = "orders", records: int = 0, **config: Any) -> str:
        """A new topic with so many records, every other of which is ann's."""
        name = self.name(word)
        self.call("PUT", f"/v0/topics/{name}", config)
        for start in range(0, records, 5000):
            self.write(name, *({"item": f"item {number}"} for number in range(start, min(records, start + 5000))))
        return name

    def write(self, topic: str, *data: Any) -> None:
        records = [{"data": one, "tag": f"customer:{'bob' if at % 2 else 'ann'}"} for at, one in enumerate(data)]
        self.call("POST", f"/v0/topics/{topic}", {"records": records})

    def state(self, topic: str) -> Any:
        return self.call("GET", f"/v0/topics/{topic}")

    def queue(self) -> tuple[str, str]:
        """A new queue in which there is some of everything, and its dead letters."""
        name, dead = self.name("emails"), self.name("dead")
        config = {"type": "queue", "lease_ms": 3_600_000, "max_deliveries": 1, "dead_letter": dead}
        self.call("PUT", f"/v0/topics/{name}", config)
        self.write(name, *({"to": f"reader {number}"} for number in range(8)))
        late = {"data": {"to": "later"}, "not_before_ts": 4_000_000_000_000}
        self.call("POST", f"/v0/topics/{name}", {"records": [late]})
        failed = self.call("POST", f"/v0/topics/{name}/claim", {"node": "mailer-0", "max": 2})["claimed"]
        seqs = [job["$seq"] for job in failed]
        self.call("POST", f"/v0/topics/{name}/nack", {"node": "mailer-0", "seqs": seqs, "reason": EXCEPTION})
        self.call("POST", f"/v0/topics/{name}/claim", {"node": "mailer-1", "max": 2})
        return name, dead

    def failing_queue(self) -> str:
        """A new queue of jobs that failed twice: one is leased, one is delayed, one is ready."""
        name = self.name("thumbnails")
        self.call("PUT", f"/v0/topics/{name}", {"type": "queue", "lease_ms": 3_600_000, "retry_max_ms": 3_600_000})
        self.write(name, *({"file": f"photo-{number}.png"} for number in range(3)))
        for reason in ("exit code 3: no such file\nfirst line of a long text\nno such file", EXCEPTION):
            self.call("POST", f"/v0/topics/{name}/claim", {"node": "painter", "max": 3})
            self.call("POST", f"/v0/topics/{name}/nack", {"node": "painter", "seqs": [1, 2, 3], "reason": reason})
        self.call("POST", f"/v0/topics/{name}/claim", {"node": "painter", "max": 2})
        self.call("POST", f"/v0/topics/{name}/nack", {"node": "painter", "seqs": [2], "delay_ms": 3_600_000})
        return name

    def chain(self) -> list[str]:
        """Three new topics, each routed to the next."""
        names = [self.name(word) for word in ("first", "second", "third")]
        self.call("PUT", f"/v0/topics/{names[0]}", {})
        for source, dest in pairwise(names):
            self.call("PUT", f"/v0/routers/{source}-to-{dest}", {"source": source, "dest": dest})
        return names

    def subscription(self, **config: Any) -> str:
        """A new subscription that a worker claims, to a stream with two records and one that does not exist."""
        name = self.name("indexer")
        wanted = {"type": "pull-wake", "streams": [f"{name}/docs", f"{name}/later"], "wake_stream": f"{name}/wakes"}
        self.call("PUT", f"/v1/stream/__ds/subscriptions/{name}", wanted | config)
        self.stream(f"{name}/docs", 1, 2)
        return name

    def stream(self, name: str, *data: Any) -> None:
        """A new stream of JSON with these records."""
        self.call("PUT", f"/v1/stream/{name}", headers={"content-type": "application/json"})
        self.call("POST", f"/v1/stream/{name}", list(data))

    def requests(self, *, sortable: bool = True) -> str:
        """A new stream that can be searched, of two services within two hours."""
        name = self.name("requests")
        at = {**SEARCH["fields"]["at"], "sortable": sortable}
        search = {**SEARCH, "fields": {**SEARCH["fields"], "at": at}}
        self.call("PUT", f"/v1/stream/{name}", headers={"content-type": "application/json"})
        self.call("POST", f"/v1/stream/{name}/_schema", {"schema": {"type": "object"}, "search": search})
        words = ["served from cache", "the bank did not answer", "order placed"]
        rows = [
            {
                "at": f"2026-11-15T{10 + number // 60}:{number % 60:02}:00Z",
                "service": "payments" if number % 3 == 1 else "shop",
                "ms": number * 5,
                "message": words[number % 3],
            }
            for number in range(120)
        ]
        self.call("POST", f"/v1/stream/{name}", rows)
        return name
