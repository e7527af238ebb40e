"""What has to be known of the logs that records go to, before any record is made."""

from __future__ import annotations

import msgspec

from strandline.engine.errors import NoDataDirectory, UnknownLog
from strandline.history.log_info import LogInfo
from strandline.history.source import History, open_history
from strandline.pipeline.imports.shape import Shape
from strandline.pipeline.source.options import Place


def knowing(shape: Shape, place: Place) -> Shape:
    """The shape, with the logs that take payloads which are no JSON."""
    try:
        history = open_history(path=place.path, url=place.url, key=place.key, cold_url=place.cold)
    except NoDataDirectory:
        return shape  # it is made
    try:
        names = [info.name for info in _logs(history, shape) if info.media_type != "application/json"]
    finally:
        history.close()
    return msgspec.structs.replace(shape, not_json=names)


def _logs(history: History, shape: Shape) -> list[LogInfo]:
    if not shape.log:
        return history.logs()
    try:
        return [history.log(shape.log)]
    except UnknownLog:
        return []
