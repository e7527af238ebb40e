"""Typed tables: a Delta table per log with a schema, and per declared table."""
