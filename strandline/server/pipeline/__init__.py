"""Supervises the pipeline: when to start it, its process, and its state over HTTP."""
