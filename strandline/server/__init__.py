"""The server: one process, one event loop, two lanes to the same handlers."""
