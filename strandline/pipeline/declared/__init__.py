"""Declared tables: a project declares tables over logs, and the pipeline keeps them current."""
