"""Static files of a page: public, packaged with the server, and served unchanged.

The media type, the ETag and the compressed form of a file are computed at its first request and kept.
"""

from __future__ import annotations

import gzip
from hashlib import sha256
from pathlib import Path

from strandline.service.content_coding import accepted_coding
from strandline.service.http import VARY_ENCODING, Call, Head, Reply
from strandline.service.openapi import TEXT as STRING
from strandline.service.openapi import AnswerShape, Header, Parameter

MEDIA_TYPES = {
    ".css": b"text/css; charset=utf-8",
    ".html": b"text/html; charset=utf-8",
    ".ico": b"image/x-icon",
    ".js": b"text/javascript; charset=utf-8",
    ".json": b"application/json",
    ".png": b"image/png",
    ".svg": b"image/svg+xml",
    ".webmanifest": b"application/manifest+json",
    ".woff2": b"font/woff2",
}
TEXT = b"text/plain; charset=utf-8"

#: Allows only the server's own files and no inline code, so the content of a record never runs.
POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    b"connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
#: File names do not change between releases, so a browser revalidates a file every time and mostly gets a 304.
HEADERS = (
    (b"content-security-policy", POLICY),
    (b"cache-control", b"no-cache"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    VARY_ENCODING,
)


class _File:
    """One file, plain and compressed. Each form has its own strong ETag."""

    __slots__ = ("body", "content_type", "gzip_tag", "gzipped", "tag")

    def __init__(self, path: Path) -> None:
        self.body = path.read_bytes()
        self.content_type = MEDIA_TYPES.get(path.suffix, TEXT)
        digest = sha256(self.body).hexdigest()[:32]
        self.tag = f'"{digest}"'.encode()
        self.gzip_tag = f'"{digest}-gzip"'.encode()
        # A timestamp would change the compressed bytes with every start.
        self.gzipped = gzip.compress(self.body, mtime=0)

    def reply(self, head: Head) -> Reply:
        gzipped = accepted_coding(head, (b"gzip",)) is not None
        tag = self.gzip_tag if gzipped else self.tag
        headers = ((b"etag", tag), *HEADERS)
        known = [each.strip().removeprefix(b"W/") for each in head.headers.get(b"if-none-match", b"").split(b",")]
        if tag in known or b"*" in known:
            return Reply(b"", 304, self.content_type, headers)
        if gzipped:
            return Reply(self.gzipped, 200, self.content_type, (*headers, (b"content-encoding", b"gzip")))
        return Reply(self.body, 200, self.content_type, headers)


class StaticFiles:
    """The files below a directory. The directory is listed once, at the start."""

    def __init__(self, directory: Path) -> None:
        self._paths = {path.relative_to(directory).as_posix(): path for path in directory.rglob("*") if path.is_file()}
        self._known: dict[str, _File] = {}

    def __bool__(self) -> bool:
        return bool(self._paths)

    def __contains__(self, name: str) -> bool:
        return name in self._paths

    def reply(self, name: str, head: Head) -> Reply | None:
        """The file with this name, relative to the directory; None if it does not exist."""
        file = self._known.get(name)
        if file is None:
            path = self._paths.get(name)
            if path is None:
                return None
            file = self._known[name] = _File(path)
        return file.reply(head)


def moved(call: Call, directory: str) -> Reply:
    """Redirect to the path with a slash at the end. The location is relative, so that it works behind a proxy that adds
    a path; ``directory`` is the last segment of the path."""
    query = f"?{call.head.query_string}" if call.head.query_string else ""
    return Reply(b"", 308, TEXT, ((b"location", f"{directory}/{query}".encode("latin-1")),))


# --- descriptions of routes ----------------------------------------------------------------------------------------

_TAG = Header("ETag", "The version of the file.", STRING, required=True)
_CONTENTS = {media_type.decode().partition(";")[0]: STRING for media_type in (*MEDIA_TYPES.values(), TEXT)}
FILE_ANSWERS = (
    AnswerShape(200, "The file.", _CONTENTS, (_TAG,)),
    AnswerShape(304, "The file has not changed since the version in `If-None-Match`."),
)
FILE_PARAMETERS = (
    Parameter("path", "path", "The path of the file; empty for the first page.", STRING, required=True),
    Parameter("If-None-Match", "header", "The ETags of the versions that the client has.", STRING),
)


def moved_answer(place: str) -> tuple[AnswerShape, ...]:
    return (AnswerShape(308, f"The page is at {place}.", {"text/plain": STRING}),)
