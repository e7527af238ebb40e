"""Every error that the protocol's answers can have, by its code."""

from __future__ import annotations

from strandline.protocols.openapi import Problem

PROBLEMS: dict[str, Problem] = {
    "invalid_request": Problem(400, "The request makes no sense: the message says where and why."),
    "batch_too_large": Problem(400, "More records or seqs than one request may have."),
    "record_too_large": Problem(400, "A record is larger than allowed, or the write than the whole topic may be."),
    "unauthorized": Problem(401, "There is no key, or it is not a valid one."),
    "forbidden": Problem(
        403,
        "The key lacks a scope, or may not touch this name. "
        "Without keys: the host or the page's origin is not allowed.",
    ),
    "not_found": Problem(404, "There is nothing at this path, no such watch session, or no WebSocket was asked for."),
    "topic_not_found": Problem(404, "The topic does not exist."),
    "router_not_found": Problem(404, "The router does not exist."),
    "consumer_not_found": Problem(404, "The consumer has not committed anything yet."),
    "method_not_allowed": Problem(405, "The path exists, but not with this method: `Allow` lists those it has."),
    "not_acceptable": Problem(406, "It is an event stream, and the client does not accept one."),
    "topic_exists_incompatible": Problem(
        409, "The type of a topic, the ends of a router, or a destination's only router cannot be changed."
    ),
    "topic_has_forks": Problem(409, "Streams were forked from it, and still hold its records: delete those first."),
    "topic_not_empty": Problem(409, "`if_empty` was asked for, and there are records."),
    "not_a_queue": Problem(409, "Only a queue has jobs."),
    "router_cycle": Problem(409, "Records would go in circles; `detail.cycle` is the path."),
    "not_json": Problem(409, "It is a stream of something else than JSON: use the streams protocol."),
    "not_writable": Problem(
        409, "It is a stream that is closed, or has a schema or a profile: use the streams protocol."
    ),
    "payload_too_large": Problem(413, "The body is larger than the server takes."),
    "unsupported_media_type": Problem(415, "The body is not JSON, or is compressed in another way than gzip."),
    "topic_full": Problem(422, "The topic rejects what does not fit, and this does not."),
    "throttled": Problem(
        429, "The server is busy, or one of its caps is reached (`detail.limit` says which).", retry=True
    ),
    "damaged_data": Problem(
        500, "A file with the records is damaged or missing; `detail.file` says which. Other records can be read."
    ),
    "internal": Problem(500, "Something is wrong with the server: its log has the details."),
    "not_ready": Problem(503, "The server is replaying its journal; `detail.replay_progress` goes to 1.", retry=True),
    "shutting_down": Problem(503, "The server is about to stop.", retry=True),
    "read_only": Problem(
        503,
        "The journal failed: the server takes no writes until it is restarted. Reads work. If a write was under way "
        "at that moment, its outcome is unknown.",
        retry=True,
    ),
    "disk_full": Problem(507, "There is no room on the disk. Nothing was written.", retry=True),
}
