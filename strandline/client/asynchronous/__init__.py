"""The client for event loops. ``tools/generate_client.py`` generates ``strandline.client.synchronous`` from it."""
