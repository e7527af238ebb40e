"""The client for threads. Made from ``strandline.client.asynchronous`` by ``tools/generate_client.py``: change that."""
