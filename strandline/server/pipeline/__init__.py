"""Supervision of the pipeline: when it starts and stops, its process, and its routes."""
