"""What records look like: the registry of a stream, lenses between its versions, validation, profiles.

Synchronous, and without I/O: a registry is a value, and every change gives a new one.
"""
