"""Sealed history: the segment file, how it is written, stored and read."""
