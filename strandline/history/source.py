"""The door: history by path or by url."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from strandline.history.log_info import LogInfo
from strandline.history.pieces import EVERYTHING, Piece, SegmentPiece, Where
from strandline.history.remote import ServerPiece


class History(Protocol):
    """The logs of a data directory as they are when this is made, or as they are when it is asked, and the pieces that
    their records come in. ``directory`` is the id of the data directory."""

    directory: str

    def logs(self, prefix: str = "") -> list[LogInfo]:
        """All logs, those that the server keeps for itself included, by name."""

    def log(self, name: str) -> LogInfo:
        """Raises UnknownLog."""

    def standing(self, log: LogInfo) -> list[tuple[int, int]]:
        """The seqs that readers see, as inclusive ranges; some in them may never have held anything."""

    def pieces(
        self, log: LogInfo, after: int, through: int, rows: int, where: Where = EVERYTHING, *, own: bool = False
    ) -> Sequence[Piece]:
        """What there is to read from behind ``after`` up to ``through``, in pieces of about ``rows`` records. With
        ``own`` without what a fork shares with the log it was forked from."""

    def close(self) -> None:
        """Nobody reads pieces of it any more."""


def open_history(
    *,
    path: str = "",
    url: str = "",
    key: str | None = None,
    cold_url: str = "",
    cold_options: dict[str, str | bool] | None = None,
) -> History:
    """Raises ValueError unless there is either a path or a url."""
    if bool(path) == bool(url):
        raise ValueError("give either the path of a data directory or the url of a server")
    if path:
        from strandline.history.directory import DirectoryHistory

        return DirectoryHistory(path, cold_url, cold_options)
    from strandline.history.remote import ServerHistory

    return ServerHistory(url, key)


# --- Every kind of piece there is, for those who send pieces to where they are read ---------------------------------

AnyPiece = SegmentPiece | ServerPiece
