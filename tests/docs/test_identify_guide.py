"""The declarations of the guide to JSON Web Tokens, with every kind of key and with keys that are fetched."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from time import time
from types import ModuleType
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import Key, KeySet, OctKey, OKPKey, RSAKey
from support.guide import blocks
from support.served_guides import GUIDES
from support.server_process import StartServer
from support.tables_client import Bed

from strandline.server.declarations import load
from strandline.tables import TableError

KEYS: dict[str, Key] = {
    "RS256": RSAKey.generate_key(2048, {"kid": "rsa"}),
    "EdDSA": OKPKey.generate_key("Ed25519", {"kid": "ed"}),
    "HS256": OctKey.generate_key(256, {"kid": "shared"}),
}
each_algorithm = pytest.mark.parametrize("algorithm", KEYS)
pytestmark = pytest.mark.filterwarnings("ignore:EdDSA is deprecated")


def published() -> dict[str, Any]:
    """The keys as the server needs them: public, except for the shared secret."""
    return {"keys": [key.as_dict(private=key.key_type == "oct") for key in KEYS.values()]}


def token(algorithm: str, **claims: Any) -> str:
    said = {"iss": "https://login.example.com", "aud": "rooms", "sub": "ann", "exp": int(time()) + 3600, **claims}
    said = {name: value for name, value in said.items() if value is not None}
    key = KEYS[algorithm]
    return jwt.encode({"alg": algorithm, "kid": key.kid}, said, key, algorithms=[algorithm])


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("guide")
    for block in blocks(GUIDES["identify-users"].path.read_text()):
        if block.file:
            (directory / block.file).write_text(block.text)
    return directory


@pytest.fixture(scope="module")
def rooms(files: Path) -> ModuleType:
    load(str(files / "rooms.py"))
    return sys.modules["strandline_declarations_rooms"]


@each_algorithm
def test_a_token_names_the_user_and_the_roles(rooms: ModuleType, algorithm: str) -> None:
    exp = int(time()) + 60
    user = rooms.user_of(token(algorithm, roles=["moderator"], exp=exp), KeySet.import_key_set(published()))
    assert (user.id, user.roles, user.expires_at) == ("ann", ("moderator",), exp * 1000)


@each_algorithm
@pytest.mark.parametrize(
    "claims",
    [
        {"exp": 1},
        {"exp": None},
        {"exp": "tomorrow"},
        {"aud": "another"},
        {"aud": None},
        {"iss": "https://elsewhere.example.com"},
        {"sub": None},
        {"sub": 7},
        {"roles": "moderator"},
    ],
)
def test_a_token_that_is_not_for_this_server_is_refused(
    rooms: ModuleType, algorithm: str, claims: dict[str, Any]
) -> None:
    with pytest.raises(TableError, match="the token is not valid") as error:
        rooms.user_of(token(algorithm, **claims), KeySet.import_key_set(published()))
    assert error.value.code == "NOT_AUTHENTICATED"


@each_algorithm
def test_a_token_with_another_signature_is_refused(rooms: ModuleType, algorithm: str) -> None:
    forged = token(algorithm, sub="ann").rpartition(".")[0] + "." + token(algorithm, sub="eve").rpartition(".")[2]
    for text in (forged, token(algorithm) + "x", "nonsense", "", "a.b.c"):
        with pytest.raises(TableError, match="the token is not valid"):
            rooms.user_of(text, KeySet.import_key_set(published()))


class KeyServer(BaseHTTPRequestHandler):
    asked = 0

    def do_GET(self) -> None:
        type(self).asked += 1
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(published()).encode())

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def key_server() -> Iterator[str]:
    KeyServer.asked = 0
    server = HTTPServer(("127.0.0.1", 0), KeyServer)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/keys.json"
    server.shutdown()
    thread.join()
    server.server_close()


def test_keys_are_fetched_once(
    start_server: StartServer, files: Path, key_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGIN_KEYS", key_server)
    bed = Bed(start_server(declare=files / "fetched.py"))
    ann, eve = bed.user(key=token("RS256")), bed.user(key=token("RS256", aud="another"))
    for _ in range(2):
        assert ann.append("message", "hall", {"text": "hello"})["created"]
    body = {"parent": "hall", "payload": {"text": "hello"}}
    assert eve.refused_write("message", "append", **body, status=401)["code"] == "NOT_AUTHENTICATED"
    moderator = token("EdDSA", sub="mia", roles=["moderator"])
    with bed.user().events(f"/tables/message/auth/live?parent=hall&token={moderator}") as events:
        assert events.next().json["userId"] == "ann"
    assert KeyServer.asked == 1
    bed.close()
