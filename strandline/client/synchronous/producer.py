# Made by tools/generate_client.py. Change the module of the same name in asynchronous/ instead.

"""Appending exactly once."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Generic, TypeVar

from strandline.client import stream_calls as calls
from strandline.client.calls import ALWAYS, Request
from strandline.client.concurrency import SyncLock
from strandline.client.errors import BadAnswer, Refused
from strandline.client.producer import ProducerState
from strandline.client.stream_types import Appended
from strandline.client.synchronous.transport import Transport

T = TypeVar("T")


class Producer(Generic[T]):
    """Numbers its appends, so that each is made once however often it is sent. Several may use it at a time; their
    appends go one after the other. Raises Fenced from the moment on when another producer of its id has begun."""

    def __init__(self, transport: Transport, path: str, content_type: str, state: ProducerState) -> None:
        self._transport = transport
        self._path = path
        self._content_type = content_type
        self._state = state
        self._lock = SyncLock()

    @property
    def id(self) -> str:
        return self._state.id

    @property
    def epoch(self) -> int | None:
        """None: not known before the first append."""
        return self._state.epoch

    @property
    def seq(self) -> int:
        """The number of the next append."""
        return self._state.seq

    def append(self, value: T, *, key: str | None = None, timestamp: datetime | str | None = None) -> Appended:
        """Append one record."""
        return self._append([value], {"stream-key": key, "stream-timestamp": timestamp})

    def append_many(
        self, values: Iterable[T], *, key: str | None = None, timestamp: datetime | str | None = None
    ) -> Appended:
        """Append records of JSON: all of them or none."""
        return self._append(list(values), {"stream-key": key, "stream-timestamp": timestamp})

    def close(self, last: T | None = None) -> Appended:
        """Close the stream, with a last record in the same step if one is given."""
        return self._append([] if last is None else [last], {"stream-closed": True})

    def _append(self, values: list[T], fields: dict[str, Any]) -> Appended:
        body = calls.encode(values, self._content_type) if values else b""
        state = self._state
        with self._lock:
            state.check()
            if state.epoch is None:
                self._begin(body, fields)
            try:
                answer = self._transport.call(self._request(body, {**fields, **state.headers()}))
            except BaseException as error:
                state.failed(error)
                raise
            state.succeeded()
        return calls.appended(answer)

    def _begin(self, body: bytes, fields: dict[str, Any]) -> None:
        """Find out which epoch comes next."""
        try:
            self._transport.call(self._request(body, {**fields, **self._state.probe()}))
        except Refused as error:
            self._state.learn(error)
        else:
            raise BadAnswer("the server has taken an append whose number cannot be the next one")

    def _request(self, body: bytes, fields: dict[str, Any]) -> Request:
        return calls.append(self._path, self._content_type, body, fields, ALWAYS)
