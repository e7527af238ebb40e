"""The client for threads. Generated from ``strandline.client.asynchronous`` by ``tools/generate_client.py``."""
