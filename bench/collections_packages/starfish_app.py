"""python starfish_app.py PORT DIRECTORY CONFIGURATION: runs the published server with its files in a directory."""

import sys

import uvicorn
from fastapi import FastAPI
from starfish_server import (
    FilesystemObjectStore,
    FilesystemStorageOptions,
    create_cap_cert_role_resolver,
    create_in_memory_nonce_cache,
    create_in_memory_revocation_store,
    load_config_file,
)
from starfish_server.router.route_builder import SyncRouterOptions, create_sync_router

_, port, directory, configuration = sys.argv
resolver = create_cap_cert_role_resolver(
    nonce_cache=create_in_memory_nonce_cache(), revocation_store=create_in_memory_revocation_store()
)
options = SyncRouterOptions(
    store=FilesystemObjectStore(FilesystemStorageOptions(base_dir=directory)),
    config=load_config_file(configuration),
    role_resolver=resolver,
)
app = FastAPI()
app.include_router(create_sync_router(options))
uvicorn.run(app, host="127.0.0.1", port=int(port), loop="uvloop", http="httptools", access_log=False, log_level="error")
