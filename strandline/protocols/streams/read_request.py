"""The query string of a GET, parsed."""

from __future__ import annotations

from typing import Literal, NamedTuple
from urllib.parse import parse_qsl

from strandline.protocols.streams import offsets
from strandline.protocols.streams.errors import bad_request
from strandline.protocols.streams.grammar import duration_ms, time_ms
from strandline.protocols.streams.stream import Stream
from strandline.service.http import Head

Live = Literal["", "long-poll", "sse"]
_LIVE: dict[str, Live] = {
    "": "",
    "0": "",
    "false": "",
    "long-poll": "long-poll",
    "true": "long-poll",
    "1": "long-poll",
    "sse": "sse",
}


class Ask(NamedTuple):
    """``after`` is a seq; None: the current end. ``given``: the request names an offset, so a reader that has missed
    records must get an error."""

    after: int | None
    given: bool
    since: int | None
    live: Live
    #: Maximum time to wait; None: the default of the server.
    timeout_ms: int | None
    key: str | None
    filter: str | None
    format: str | None
    cursor: str
    #: Whether to return only the last record of each key, as of now.
    latest: bool

    @classmethod
    def of(cls, head: Head) -> Ask:
        query = head.query
        if "offset" in query:
            _check_single(head, "offset")
        live = _LIVE.get(query.get("live", ""))
        if live is None:
            raise bad_request(f"live must be long-poll or sse, not {query['live']!r}")
        after, given = _offset(query.get("offset"))
        if live and "offset" not in query:
            raise bad_request("a live read requires an offset")
        since = None
        if "since" in query:
            since = time_ms("since", query["since"])
        timeout = query.get("timeout", query.get("timeout_ms"))
        form = query.get("format")
        if form not in (None, "raw", "json"):
            raise bad_request(f"format must be raw or json, not {form!r}")
        view = query.get("view")
        if view not in (None, "latest"):
            raise bad_request(f"view must be latest, not {view!r}")
        if view is not None and live:
            raise bad_request("view=latest cannot be combined with live; continue without view from Stream-Next-Offset")
        if "filter" in query and live == "sse":
            raise bad_request("filter is not supported with live=sse")
        return cls(
            after,
            given,
            None if "offset" in query else since,
            live,
            None if timeout is None else duration_ms("timeout", timeout),
            head.params.get("key") or query.get("key") or None,
            query.get("filter"),
            form,
            query.get("cursor", ""),
            view is not None,
        )

    def as_json(self, stream: Stream) -> bool:
        """Whether the records are returned as one JSON array."""
        if self.format is None:
            return stream.is_json
        if self.format == "json" and not stream.is_json:
            raise bad_request(f"format=json requires a stream of application/json; this one holds {stream.media_type}")
        return self.format == "json"


def _check_single(head: Head, name: str) -> None:
    if head.query_string.count(name) > 1 or "%" in head.query_string:
        names = [key for key, _ in parse_qsl(head.query_string, keep_blank_values=True)]
        if names.count(name) > 1:
            raise bad_request(f"{name} is given more than once")


def _offset(text: str | None) -> tuple[int | None, bool]:
    if text is None or text == offsets.START:
        return 0, False
    if text == offsets.NOW:
        return None, False
    seq = offsets.decode(text)
    if seq is None:
        raise bad_request(f"{text!r} is not a valid offset")
    return seq, seq > 0
