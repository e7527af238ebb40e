"""Servers, clients, models and data that several tests use."""
