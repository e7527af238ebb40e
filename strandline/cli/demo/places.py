"""Where the demonstration keeps its things: a directory that goes with it, or one that stays."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from strandline.cli.demo.server import DECLARED, Broken

SETTINGS = "strandline.toml"
PICTURE = "takings.png"


class Places(NamedTuple):
    directory: Path
    picture: Path


@contextmanager
def places(keep: Path | None) -> Iterator[Places]:
    """With ``keep`` everything stays there, with settings for a server; else the picture alone stays. Raises Broken if
    ``keep`` cannot be used."""
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="strandline-demo-") as directory:
            yield Places(Path(directory), Path(tempfile.gettempdir()) / f"{Path(directory).name}.png")
        return
    keep = keep.absolute()
    try:
        keep.mkdir(parents=True, exist_ok=True)
        if any(keep.iterdir()):
            raise Broken(f"{keep} is not empty: give --keep a new directory")
        (keep / SETTINGS).write_text(_settings(keep))
    except OSError as error:
        raise Broken(f"{keep} cannot be used: {error.strerror}") from None
    yield Places(keep, keep / PICTURE)


def _settings(directory: Path) -> str:
    # A string of JSON is one of TOML as well.
    return (
        f"[server]\ndeclare = {json.dumps(DECLARED)}\n\n"
        f"[storage]\ndata_dir = {json.dumps(str(directory / 'data'), ensure_ascii=False)}\n"
    )
