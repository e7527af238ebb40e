"""A small client of the topics protocol for tests: HTTP, event streams and WebSockets, all with deadlines."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic, sleep
from typing import Any, NamedTuple, TypeVar

import httpx
import msgspec
from websockets.sync.client import ClientConnection, connect

T = TypeVar("T")

#: Nothing that a test waits for takes this long, unless it never happens.
PATIENCE_SECONDS = 15.0


def eventually(look: Callable[[], T], seconds: float = PATIENCE_SECONDS) -> T:
    """Look again and again until what is seen is true; fails with the last thing seen."""
    deadline = monotonic() + seconds
    while True:
        seen = look()
        if seen:
            return seen
        assert monotonic() < deadline, f"it did not happen within {seconds} s; last seen: {seen!r}"
        sleep(0.005)


class Client:
    """One keep-alive connection pool. The methods that are named after requests check that they succeed."""

    def __init__(self, url: str, key: str = "") -> None:
        self.url = url
        self.key = key
        self.headers = {"authorization": f"Bearer {key}"} if key else {}
        # Certificates, which nobody looks at here, would take longer to load than most tests take.
        self.http = httpx.Client(
            base_url=url, headers=self.headers, timeout=PATIENCE_SECONDS, trust_env=False, verify=False
        )

    def close(self) -> None:
        self.http.close()

    # --- any request -----------------------------------------------------------------------------------------------

    def request(self, method: str, path: str, body: object = None, **options: Any) -> httpx.Response:
        """``body`` is sent as JSON; bytes are sent as they are, as JSON too."""
        if body is not None:
            content = body if isinstance(body, bytes) else msgspec.json.encode(body)
            headers = {"content-type": "application/json", **options.pop("headers", {})}
            return self.http.request(method, path, content=content, headers=headers, **options)
        return self.http.request(method, path, **options)

    def call(self, method: str, path: str, body: object = None, *, status: int = 200, **options: Any) -> Any:
        """The answer's JSON, when it has the expected status."""
        response = self.request(method, path, body, **options)
        assert response.status_code == status, f"{method} {path}: {response.status_code} {response.text}"
        return response.json() if response.content else None

    def refused(self, method: str, path: str, body: object = None, *, status: int, **options: Any) -> dict[str, Any]:
        """The ``error`` of a request that is refused with that status."""
        answer = self.call(method, path, body, status=status, **options)
        assert set(answer) == {"error"}, answer
        error: dict[str, Any] = answer["error"]
        assert set(error) <= {"code", "message", "detail"}, error
        return error

    # --- topics ----------------------------------------------------------------------------------------------------

    def put(self, topic: str, *, status: int | None = None, **config: Any) -> Any:
        """Create or change a topic."""
        response = self.request("PUT", f"/v0/topics/{topic}", config)
        expected = (200, 201) if status is None else (status,)
        assert response.status_code in expected, f"{response.status_code} {response.text}"
        return response.json()

    def get(self, topic: str) -> Any:
        return self.call("GET", f"/v0/topics/{topic}")

    def drop(self, topic: str, status: int = 200) -> Any:
        return self.call("DELETE", f"/v0/topics/{topic}", status=status)

    def write(self, topic: str, records: list[Any], **fields: Any) -> Any:
        """Append records: each a dict with ``data``, or anything else, which is then the data itself."""
        rows = [one if isinstance(one, dict) and "data" in one else {"data": one} for one in records]
        response = self.request("POST", f"/v0/topics/{topic}", {"records": rows, **fields})
        assert response.status_code in (200, 201), f"{response.status_code} {response.text}"
        return response.json()

    def diff(self, topic: str, from_seq: int = 0, **fields: Any) -> Any:
        return self.call("POST", f"/v0/topics/{topic}/diff", {"from_seq": from_seq, **fields})

    def delete(self, topic: str, **fields: Any) -> Any:
        return self.call("POST", f"/v0/topics/{topic}/delete", fields)

    # --- queues ----------------------------------------------------------------------------------------------------

    def queue(self, topic: str, jobs: list[Any] | None = None, **config: Any) -> None:
        """Create a queue, with jobs in it."""
        self.put(topic, type="queue", **config)
        if jobs:
            self.write(topic, jobs)

    def claim(self, topic: str, node: str = "worker", **fields: Any) -> list[Any]:
        """The jobs that were handed out."""
        jobs: list[Any] = self.call("POST", f"/v0/topics/{topic}/claim", {"node": node, **fields})["claimed"]
        return jobs

    def ack(self, topic: str, seqs: list[int], node: str = "worker", **fields: Any) -> Any:
        return self.call("POST", f"/v0/topics/{topic}/ack", {"node": node, "seqs": seqs, **fields})

    def nack(self, topic: str, seqs: list[int], node: str = "worker", **fields: Any) -> Any:
        return self.call("POST", f"/v0/topics/{topic}/nack", {"node": node, "seqs": seqs, **fields})

    def extend(self, topic: str, seqs: list[int], node: str = "worker", **fields: Any) -> Any:
        return self.call("POST", f"/v0/topics/{topic}/extend", {"node": node, "seqs": seqs, **fields})

    # --- streams ---------------------------------------------------------------------------------------------------

    @contextmanager
    def events(self, path: str, *, key: str | None = None, **headers: str) -> Iterator[EventStream]:
        """An open event stream. Header names are given with underscores: ``last_event_id="…"``."""
        wanted = {"accept": "text/event-stream"} | {name.replace("_", "-"): value for name, value in headers.items()}
        if key is not None:
            wanted["authorization"] = f"Bearer {key}"
        with self.http.stream("GET", path, headers=wanted) as response:
            if response.status_code != 200:
                response.read()
                raise AssertionError(f"GET {path}: {response.status_code} {response.text}")
            yield EventStream(response)

    @contextmanager
    def websocket(self, path: str = "/v0/ws", *, key: str | None = None) -> Iterator[Socket]:
        """An open WebSocket. A handshake that is refused raises ``websockets.exceptions.InvalidStatus``."""
        token = self.key if key is None else key
        headers = {"authorization": f"Bearer {token}"} if token else {}
        url = "ws" + self.url.removeprefix("http") + path
        with connect(
            url, additional_headers=headers, proxy=None, open_timeout=PATIENCE_SECONDS, close_timeout=5, max_size=None
        ) as connection:
            yield Socket(connection)


class Waiting:
    """A request under way on a thread of its own."""

    def __init__(self, client: Client, ask: Callable[[Client], Any]) -> None:
        self._answers: list[Any] = []
        self._thread = threading.Thread(target=self._run, args=(client.url, client.key, ask))
        self._thread.start()

    def _run(self, url: str, key: str, ask: Callable[[Client], Any]) -> None:
        client = Client(url, key)
        try:
            self._answers.append(ask(client))
        finally:
            client.close()

    @property
    def done(self) -> bool:
        return bool(self._answers)

    def answer(self) -> Any:
        self._thread.join(20)
        assert self._answers, "there was no answer"
        return self._answers[0]


class Event(NamedTuple):
    """One block of an event stream. Fields that it does not have are None; a comment has only its text."""

    event: str | None = None
    data: str | None = None
    id: str | None = None
    retry: int | None = None
    comment: str | None = None

    @property
    def json(self) -> Any:
        assert self.data is not None, self
        return msgspec.json.decode(self.data)


class EventStream:
    """Reads an event stream block by block."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        #: Everything that came, byte for byte.
        self.raw = b""
        self._chunks = response.iter_raw()
        self._rest = b""

    def next_block(self, seconds: float = PATIENCE_SECONDS) -> Event | None:
        """The next block, comments included; None when the server has ended the stream."""
        deadline = monotonic() + seconds
        while b"\n\n" not in self._rest:
            assert monotonic() < deadline, f"no whole block within {seconds} s; so far: {self._rest!r}"
            chunk = next(self._chunks, None)
            if chunk is None:
                assert not self._rest, f"the stream ended within a block: {self._rest!r}"
                return None
            self._rest += chunk
            self.raw += chunk
        block, _, self._rest = self._rest.partition(b"\n\n")
        return parse_block(block.decode())

    def next(self, seconds: float = PATIENCE_SECONDS) -> Event:
        """The next block that has an event; comments and bare ``retry`` blocks are passed over."""
        deadline = monotonic() + seconds
        while True:
            event = self.next_block(deadline - monotonic())
            assert event is not None, "the server ended the stream"
            if event.data is not None:
                return event
            assert monotonic() < deadline, f"no event within {seconds} s"

    def wait_for(self, kind: str, seconds: float = PATIENCE_SECONDS) -> Event:
        """The next event of that kind; others are passed over."""
        deadline = monotonic() + seconds
        while (event := self.next(deadline - monotonic())).event != kind:
            pass
        return event

    def ended(self) -> list[Event]:
        """Read to the end; returns the events that still came."""
        events = []
        while (event := self.next_block()) is not None:
            if event.data is not None:
                events.append(event)
        return events


def parse_block(block: str) -> Event:
    fields: dict[str, Any] = {}
    data: list[str] = []
    for line in block.split("\n"):
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            data.append(value)
        elif name == "retry":
            fields["retry"] = int(value)
        else:
            assert name in ("", "event", "id"), f"not a line of an event stream: {line!r}"
            fields[name or "comment"] = value
    if data:
        fields["data"] = "\n".join(data)
    return Event(**fields)


class Socket:
    """A WebSocket that speaks JSON."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    def send(self, message: object) -> None:
        """Text is sent as it is, everything else as JSON."""
        self.connection.send(message if isinstance(message, str) else msgspec.json.encode(message).decode())

    def next(self, seconds: float = PATIENCE_SECONDS) -> Any:
        return msgspec.json.decode(self.connection.recv(timeout=seconds))

    def wait_for(self, kind: str, seconds: float = PATIENCE_SECONDS) -> Any:
        """The next message of that type (or ``op``); others are passed over."""
        deadline = monotonic() + seconds
        while True:
            message = self.next(deadline - monotonic())
            if kind in (message.get("type"), message.get("op"), message.get("event")):
                return message
