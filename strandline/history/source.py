"""The entry point: history by path or by URL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from strandline.history.log_info import LogInfo
from strandline.history.pieces import EVERYTHING, Piece, SegmentPiece, Where
from strandline.history.remote import ServerPiece

if TYPE_CHECKING:
    from strandline.history.directory import KnownLogs


class History(Protocol):
    """The logs of a data directory, and the pieces with their records. A history by path shows the moment of its
    creation, a history by URL the moment of each call. ``directory`` is the id of the data directory."""

    directory: str

    def logs(self, prefix: str = "") -> list[LogInfo]:
        """Return all logs by name, including internal ones."""

    def log(self, name: str) -> LogInfo:
        """Return a log. Raises UnknownLog."""

    def standing(self, log: LogInfo) -> list[tuple[int, int]]:
        """Return the visible seqs as inclusive ranges. The ranges may contain seqs that never had a record."""

    def pieces(
        self, log: LogInfo, after: int, through: int, rows: int, where: Where = EVERYTHING, *, own: bool = False
    ) -> Sequence[Piece]:
        """Return the records after ``after`` up to ``through``, in pieces of about ``rows`` records. With ``own``, omit
        records that a fork shares with its source."""

    def close(self) -> None:
        """Release all files. Pieces can no longer be read."""


def open_history(
    *,
    path: str = "",
    url: str = "",
    key: str | None = None,
    cold_url: str = "",
    cold_options: dict[str, str | bool] | None = None,
    known: KnownLogs | None = None,
) -> History:
    """Open the history of a data directory or a server. ``known`` makes a history by path quicker if the caller opens
    one after the other. Raises ValueError unless exactly one of ``path`` and ``url`` is given."""
    if bool(path) == bool(url):
        raise ValueError("pass either the path of a data directory or the url of a server")
    if path:
        from strandline.history.directory import DirectoryHistory

        return DirectoryHistory(path, cold_url, cold_options, known)
    from strandline.history.remote import ServerHistory

    return ServerHistory(url, key)


# --- all kinds of pieces, for code that sends pieces to workers -----------------------------------------------------

AnyPiece = SegmentPiece | ServerPiece
