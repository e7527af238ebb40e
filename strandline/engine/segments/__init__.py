"""Sealed history: the segment file, how it is made, where it is kept and how it is read."""
