"""The files of the console."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from strandline.service.http import Call, Reply
from strandline.service.problems import NOT_FOUND, Refusal
from strandline.service.static_files import StaticFiles, moved

DIRECTORY = Path(__file__).parent / "assets"
INDEX = "index.html"


class Assets:
    def __init__(self, directory: Path = DIRECTORY) -> None:
        self._files = StaticFiles(directory)

    def redirect(self, call: Call) -> Reply:
        """GET /console"""
        return moved(call, "console")

    def get(self, call: Call) -> Reply:
        """GET /console/{path}"""
        path = call.param("path") or INDEX
        reply = self._files.reply(path, call.head)
        if reply is None:
            raise Refusal(NOT_FOUND, f"the console has no file named {PurePosixPath(path).name!r}")
        return reply
