"""Every error that the answers of this face can have, by its code."""

from __future__ import annotations

from strandline.protocols.openapi import Problem

PROBLEMS: dict[str, Problem] = {
    "invalid_request": Problem(400, "The request makes no sense: the message says where and why."),
    "not_json": Problem(400, "The log holds JSON, and a record is none; `detail.row` says which."),
    "record_too_large": Problem(400, "A record is larger than allowed, or the append than the whole log may be."),
    "unauthorized": Problem(401, "There is no key, or it is not a valid one."),
    "forbidden": Problem(
        403,
        "The key lacks a scope, or may not touch this name. "
        "Without keys: the host or the page's origin is not allowed.",
    ),
    "log_not_found": Problem(404, "There is no such log."),
    "method_not_allowed": Problem(405, "The path exists, but not with this method: `Allow` lists those it has."),
    "epoch_changed": Problem(409, "The log is another one than was asked for: `detail.epoch` is its epoch."),
    "progress_conflict": Problem(409, "The writer's progress is not what it was taken for: `detail.progress` has it."),
    "not_writable": Problem(
        409, "It is one of the server's own logs, or a stream that is closed, or that has a schema or a profile."
    ),
    "payload_too_large": Problem(413, "The body is larger than the server takes, as it is or decompressed."),
    "unsupported_media_type": Problem(415, "The body is no Arrow stream, or is compressed in another way than gzip."),
    "log_full": Problem(422, "The log rejects what does not fit, and this does not."),
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
