"""The client for event loops. ``strandline.client.synchronous`` is made from it by ``tools/generate_client.py``."""
