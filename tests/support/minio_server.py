"""MinIO for tests."""

from __future__ import annotations

from pathlib import Path

from bench.minio import CannotBuild, build_minio
from support.prerequisites import unavailable


def find_minio() -> Path:
    """The program. If it cannot be built, the test is skipped, or fails in CI."""
    try:
        return build_minio()
    except CannotBuild as error:
        unavailable(str(error))
