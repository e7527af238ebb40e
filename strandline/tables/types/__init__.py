"""Types of the declared tables for other programs: one for reading and one for writing, in TypeScript and in Python."""

from __future__ import annotations

from strandline.tables.types.python import python_types
from strandline.tables.types.typescript import typescript_types

__all__ = ["python_types", "typescript_types"]
