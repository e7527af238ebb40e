"""Every error that the protocol's answers can have, by its code. Those of subscriptions are written in capitals."""

from __future__ import annotations

from strandline.protocols.openapi import Problem

PROBLEMS: dict[str, Problem] = {
    "bad_request": Problem(400, "The request makes no sense: the message says where and why."),
    "unauthorized": Problem(401, "There is no key, or it is not a valid one."),
    "forbidden": Problem(
        403,
        "The key lacks a scope, or may not touch this name; or the name is the server's own. "
        "Without keys: the host or the page's origin is not allowed.",
    ),
    "stale_epoch": Problem(403, "The producer has a higher epoch by now: `Producer-Epoch` says which."),
    "not_found": Problem(404, "There is no such stream, or nothing at this path; or `touch` is not enabled."),
    "method_not_allowed": Problem(405, "The path exists, but not with this method: `Allow` lists those it has."),
    "request_timeout": Problem(408, "The request took longer than the server lets any request take."),
    "append_timeout": Problem(408, "The append is not on the disk yet. Whether it will be is not known."),
    "conflict": Problem(409, "The stream is not as the request takes it to be: the message says in what respect."),
    "gone": Problem(410, "The stream was deleted and is kept for its forks; or what follows the offset is gone."),
    "payload_too_large": Problem(413, "The body is larger than the server takes."),
    "unsupported_media_type": Problem(415, "The body is compressed otherwise than with gzip, or these are no traces."),
    "overloaded": Problem(429, "The server is busy, or one of its caps is reached.", retry=True),
    "damaged_data": Problem(
        500, "A file with the records is damaged or missing; `file` says which. Other records can be read."
    ),
    "internal": Problem(500, "Something is wrong with the server: its log has the details."),
    "unavailable": Problem(503, "The server is replaying its journal, or about to stop.", retry=True),
    "read_only": Problem(
        503,
        "The journal failed: the server takes no writes until it is restarted. Reads work. If a write was under way "
        "at that moment, its outcome is unknown.",
        retry=True,
    ),
    "disk_full": Problem(507, "There is no room on the disk. Nothing was written.", retry=True),
    "INVALID_REQUEST": Problem(400, "The request makes no sense: the message says where and why."),
    "WEBHOOK_URL_REJECTED": Problem(400, "Webhooks go to public addresses over HTTPS, or to this very machine."),
    "TOKEN_INVALID": Problem(401, "There is no token, or it is not one of this wake."),
    "TOKEN_EXPIRED": Problem(401, "The token's time is up."),
    "SUBSCRIPTION_NOT_FOUND": Problem(404, "The subscription does not exist."),
    "SUBSCRIPTION_ALREADY_EXISTS": Problem(409, "There is another subscription of this id."),
    "FENCED": Problem(409, "Somebody else has the wake by now, or it is over."),
    "ALREADY_CLAIMED": Problem(409, "`current_holder` has the wake, of this `generation`."),
    "NO_PENDING_WORK": Problem(409, "There is nothing to be done."),
    "INVALID_OFFSET": Problem(409, "The acknowledged place is none, or is beyond the end of the stream."),
}
