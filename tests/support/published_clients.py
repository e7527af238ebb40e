"""Three clients of collections that are told what to do in the same words: the published ones for Python and for Node,
and this project's own. What one of them writes, the others have to be able to read.

Whoever acts (``as_``) is a dict: ``cap`` and ``priv`` for the holder of a certificate, ``link``, ``priv`` and ``pub``
for whoever follows a link; None for nobody in particular. ``keys`` are those to encrypt and decrypt with.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import time
from typing import Any, Protocol, TypeVar

import httpx
import msgspec
import starfish_identities.cap_mint
import starfish_keyring
import starfish_sharing
import starfish_sharing.cap_mint
from starfish_identities import derive_root_identity
from starfish_protocol.append_author import sign_doc_author, verify_doc_author
from starfish_sdk import AppendAuthorError, ConflictError, StarfishClient, StarfishHttpError, SyncManager
from starfish_sdk import AppendLogCursor as PublishedCursor

from strandline.client import Client
from strandline.client.collection_calls import DocumentRequest, NotPulled
from strandline.client.credentials import Credential
from strandline.client.errors import Refused, StrandlineError, WrongAuthor
from strandline.client.synchronous.collections import AppendLogCursor, Collections, Document
from strandline.client.synchronous.keyrings import SharedKeyring
from strandline.signing import certificates, keyring
from strandline.signing.author_proofs import DOCUMENT_DOMAIN, Proof, holds_for
from strandline.signing.certificates import root_of
from strandline.signing.keys import KemKey, Signer
from support.node_program import Program

T = TypeVar("T")
Json = dict[str, Any]
SCRIPT = Path(__file__).parents[1] / "clients" / "starfish" / "speaker.mjs"


class Person:
    """Somebody with keys, the same in all three clients."""

    def __init__(self, number: int) -> None:
        self.signer = Signer(f"{number:02x}" * 32)
        self.kem = KemKey(f"{number + 0x40:02x}" * 32)
        self.pub, self.user_id = self.signer.public, self.signer.user_id

    @property
    def keys(self) -> Json:
        return {
            "priv": self.signer.seed,
            "pub": self.pub,
            "kemPriv": self.kem.private,
            "kemPub": self.kem.public,
            "userId": self.user_id,
        }

    def with_cap(self, cap: Json) -> Json:
        return {"cap": cap, "priv": self.signer.seed}

    def with_link(self, fragment: str) -> Json:
        return {"link": fragment, "priv": self.signer.seed, "pub": self.pub}

    def reading(self, document: Json, *trusted: Person) -> Json:
        """The keys for a keyring of which the entries of those are trusted."""
        return {
            "keyring": document,
            "kemPub": self.kem.public,
            "kemPriv": self.kem.private,
            "trusted": [each.pub for each in trusted],
        }


class ServerRefused(Exception):
    """The server answered with an error. What it says is told as far as the client tells it."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"{status} {body}")
        self.status = status
        try:
            self.told = json.loads(body)
        except ValueError:
            self.told = body

    @property
    def error(self) -> tuple[int, str]:
        return self.status, self.told["error"] if isinstance(self.told, dict) else self.told


class AuthorRefused(Exception):
    """The client did not accept who an element is by."""

    def __init__(self, ts: int) -> None:
        super().__init__(f"the element at {ts}")
        self.ts = ts


class ClientFailed(Exception):
    """The client found something wrong by itself."""


class Speaker(Protocol):
    """A client."""

    name: str

    def tell(self, what: str, **given: Any) -> Any:
        """Have something done, and give its result. Raises one of the errors above."""

    def close(self) -> None: ...


class NodeSpeaker:
    """The published client for Node, in a process of its own."""

    name = "node"

    def __init__(self) -> None:
        self._program = Program(str(SCRIPT))

    def tell(self, what: str, **given: Any) -> Any:
        # Here and there ``as`` is a word of its own.
        self._program.tell(json.dumps({"what": what, **{name.rstrip("_"): value for name, value in given.items()}}))
        answer = self._program.heard()
        if "done" in answer:
            return answer["done"]
        failed = answer["failed"]
        if "status" in failed:
            raise ServerRefused(failed["status"], failed["body"])
        if "ts" in failed:
            raise AuthorRefused(failed["ts"])
        raise ClientFailed(failed["message"])

    def close(self) -> None:
        self._program.__exit__()


class PythonSpeaker:
    """The published client for Python."""

    name = "python"

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._clients: dict[str, StarfishClient] = {}
        self._cursors: list[PublishedCursor] = []
        self._managers: list[SyncManager] = []

    def tell(self, what: str, **given: Any) -> Any:
        try:
            return getattr(self, f"_{what}")(**given)
        except StarfishHttpError as error:
            raise ServerRefused(error.status, error.body) from error
        except ConflictError as error:
            raise ServerRefused(409, error.server_response) from error
        except AppendAuthorError as error:
            raise AuthorRefused(error.ts) from error
        except ValueError as error:
            raise ClientFailed(str(error)) from error

    def close(self) -> None:
        for client in self._clients.values():
            self._do(client.close())
        self._loop.close()

    def _do(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(coroutine)

    def _client(self, url: str, namespace: str | None = None, as_: Json | None = None) -> StarfishClient:
        held = None if as_ is None else dict(as_)
        wanted = json.dumps([url, namespace, held])
        if wanted not in self._clients:
            provider = None if held is None else _Provider(held)
            self._clients[wanted] = StarfishClient(url, cap_provider=provider, namespace=namespace)
        return self._clients[wanted]

    @staticmethod
    def _encryptor(keys: Json | None) -> Any:
        if keys is None:
            return None
        document = starfish_keyring.Keyring.from_dict(keys["keyring"])
        return starfish_keyring.create_keyring_encryptor(document, keys["kemPub"], keys["kemPriv"], keys["trusted"])

    def _root(self, passphrase: str) -> Json:
        return {"userId": derive_root_identity(passphrase).user_id}

    def _device(self, issuer: Json, subject: Json, scope: Json) -> Json:
        held = {"edPubHex": subject["pub"], "kemPubHex": subject["kemPub"]}
        return dict(starfish_identities.cap_mint.mint_device_cap(issuer["priv"], issuer["pub"], held, scope))

    def _member(self, issuer: Json, subject: Json, collection: str, scope: Json) -> Json:
        held = {"edPubHex": subject["pub"], "kemPubHex": subject["kemPub"], "userIdHex": subject["userId"]}
        mint = starfish_sharing.cap_mint.mint_member_cap
        return dict(mint(issuer["priv"], issuer["pub"], held, collection, scope))

    def _link(self, issuer: Json, collection: str, scope: Json, audience: list[str] | None = None) -> str:
        made = starfish_sharing.create_public_link(
            issuer["priv"], issuer["pub"], collection, scope, allowed_identities=audience
        )
        return str(made.fragment)

    def _append(self, key: str, data: Json, ts: int | None = None, keys: Json | None = None, **where: Any) -> Json:
        sealed = data if keys is None else self._encryptor(keys).encrypt(data)
        done = self._do(self._client(**where).append(f"/push/{key}", sealed, ts))
        return {"hash": done.hash, "timestamp": done.timestamp}

    def _append_lossy(self, key: str, data: Json, url: str, as_: Json) -> Json:
        """The answer to the first attempt is lost, and the request is sent again as it is."""

        async def append() -> Any:
            async with httpx.AsyncClient(transport=_Lossy(), trust_env=False) as http:
                client = StarfishClient(url, cap_provider=_Provider(as_), client=http)
                return await client.append(f"/push/{key}", data)

        done = self._do(append())
        return {"hash": done.hash, "timestamp": done.timestamp}

    def _append_many(self, key: str, datas: list[Json], **where: Any) -> list[Json]:
        client = self._client(**where)

        async def all_at_once() -> list[Any]:
            return await asyncio.gather(*(client.append(f"/push/{key}", data) for data in datas))

        return [{"hash": done.hash, "timestamp": done.timestamp} for done in self._do(all_at_once())]

    def _append_anonymous(self, key: str, data: Json, signer: Json, **where: Any) -> Json:
        client = self._client(**where)
        signs = {"edPubHex": signer["pub"], "edPrivHex": signer["priv"]}
        done = self._do(client.append_anonymous(f"/push/{key}", data, signs))
        return {"hash": done.hash, "timestamp": done.timestamp}

    def _pull(self, key: str, bounds: Json, **where: Any) -> list[Json]:
        options = {"append_field": "items", **bounds}
        pulled: list[Json] = self._do(self._client(**where).pull(f"/pull/{key}", **options))
        return pulled

    def _batch(self, names: list[str], params: Json, append_params: Json, **where: Any) -> Json:
        client = self._client(**where)
        return self._do(client.batch_pull(names, params=params, append_params=append_params))

    def _batch_many(self, name: str, requests: list[Json], **where: Any) -> list[Any]:
        return self._do(self._client(**where).batch_pull_many_append(name, requests))

    def _config(self, url: str) -> Json:
        return self._do(self._client(url).get_config())

    def _cursor(self, key: str, options: Json | None = None, keys: Json | None = None, **where: Any) -> int:
        client, encryptor = self._client(**where), self._encryptor(keys)
        self._cursors.append(PublishedCursor(client, f"/pull/{key}", encryptor=encryptor, **(options or {})))
        return len(self._cursors) - 1

    def _cursor_pull(self, cursor: int) -> list[Json]:
        return self._do(self._cursors[cursor].pull())

    def _cursor_items(self, cursor: int) -> list[Json]:
        return self._cursors[cursor].items

    def _cursor_decrypted(self, cursor: int) -> list[Json]:
        return self._cursors[cursor].get_decrypted_items()

    def _cursor_checkpoint(self, cursor: int) -> int:
        return self._cursors[cursor].checkpoint

    def _create_keyring(self, by: Json, recipients: list[str]) -> Json:
        return starfish_keyring.create_keyring(by["priv"], by["pub"], recipients)[0].to_dict()

    def _add_recipient(self, document: Json, by: Json, content_key: str, recipient: str) -> Json:
        parsed = starfish_keyring.Keyring.from_dict(document)
        raw = bytes.fromhex(content_key)
        return starfish_keyring.add_recipient(parsed, by["priv"], by["pub"], raw, recipient).to_dict()

    def _rotate(self, document: Json, by: Json, retained: list[str]) -> Json:
        parsed = starfish_keyring.Keyring.from_dict(document)
        return starfish_keyring.rotate_epoch(parsed, by["priv"], by["pub"], retained)[0].to_dict()

    def _push(self, key: str, data: Json, base: str | None = None, by: Json | None = None, **where: Any) -> Json:
        author = None if by is None else dict(sign_doc_author(key, data, by["pub"], by["priv"]))
        done = self._do(self._client(**where).push(f"/push/{key}", data, base, author))
        return {"hash": done.hash, "timestamp": done.timestamp}

    def _pull_document(self, key: str, with_keyring: bool = False, **where: Any) -> Json:
        pulled: Any = self._do(self._client(**where).pull(f"/pull/{key}", with_keyring=with_keyring))
        shown = {
            "data": pulled.data,
            "hash": pulled.hash,
            "authorPubkey": pulled.author_pubkey,
            "authorSignature": pulled.author_signature,
        }
        if with_keyring:
            shown["keyring"] = None if pulled.keyring is None else {"data": pulled.keyring.data}
        return shown

    def _is_by(self, key: str, data: Json, author: str, signature: str) -> bool:
        return verify_doc_author(key, data, author, signature)

    def _share(self, key: str, by: Json, recipient: str, **where: Any) -> None:
        adding = starfish_keyring.recipients.add_recipient(
            self._client(**where), key, {"subKem": recipient}, _changer(by), trusted_adders=[by["pub"]]
        )
        self._do(adding)

    def _unshare(self, key: str, by: Json, recipients: list[str], **where: Any) -> Json:
        removing = starfish_keyring.recipients.remove_recipient(
            self._client(**where), key, recipients, _changer(by), trusted_adders=[by["pub"]]
        )
        return self._do(removing)

    def _shared_with(self, key: str, by: Json, **where: Any) -> Json:
        client = self._client(**where)
        return self._do(starfish_keyring.recipients.list_recipients(client, key, trusted_adders=[by["pub"]]))

    def _add_member(self, key: str, cap: Json, **where: Any) -> None:
        self._do(starfish_sharing.add_member_entry(self._client(**where), key, cap))

    def _members(self, key: str, **where: Any) -> list[str]:
        return [entry["sub"] for entry in self._do(starfish_sharing.list_members(self._client(**where), key))]

    def _remove_member(self, key: str, nonce: str, **where: Any) -> bool:
        return self._do(starfish_sharing.remove_member_entry(self._client(**where), key, nonce))

    def _sync(self, key: str, keys: Json | None = None, **where: Any) -> int:
        client, encryptor = self._client(**where), self._encryptor(keys)
        self._managers.append(SyncManager(client, f"/pull/{key}", f"/push/{key}", encryptor=encryptor))
        return len(self._managers) - 1

    def _sync_push(self, manager: int, data: Json) -> Json:
        return self._do(self._managers[manager].push(data))

    def _sync_pull(self, manager: int) -> Json:
        self._do(self._managers[manager].pull())
        return self._managers[manager].data


def _changer(by: Json) -> Any:
    return {"edPriv": by["priv"], "edPub": by["pub"], "kemPriv": by["kemPriv"]}


class _Lossy(httpx.AsyncHTTPTransport):
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await (await super().handle_async_request(request)).aread()
        return await super().handle_async_request(request)


class _Provider:
    def __init__(self, held: Json) -> None:
        cap = held["cap"] if "cap" in held else starfish_sharing.parse_public_link(held["link"]).cap
        self._held = {"cap": cap, "dev_ed_priv_hex": held["priv"]}
        if cap["kind"] == "audience":
            self._held["pub_hex"] = held["pub"]

    async def get_cap(self) -> Json:
        return self._held


class OwnSpeaker:
    """This project's client."""

    name = "strandline"

    def __init__(self) -> None:
        self._clients: dict[str, Client] = {}
        self._cursors: list[AppendLogCursor[Any]] = []

    def tell(self, what: str, **given: Any) -> Any:
        try:
            return msgspec.to_builtins(getattr(self, f"_{what}")(**given))
        except Refused as error:
            body = {"error": error.code, **error.detail} if error.code else error.message
            raise ServerRefused(error.status, json.dumps(body)) from error
        except WrongAuthor as error:
            raise AuthorRefused(error.ts) from error
        except (StrandlineError, ValueError) as error:
            raise ClientFailed(str(error)) from error

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def _collections(self, url: str, namespace: str | None = None, as_: Json | None = None) -> Collections:
        client = self._clients.setdefault(url, Client(url))
        credential = None
        if as_ is not None:
            signer = Signer(as_["priv"])
            credential = Credential.from_link(as_["link"], signer) if "link" in as_ else Credential(as_["cap"], signer)
        return client.collections(credential, namespace=namespace)

    def _document(self, key: str, keys: Json | None = None, verify: Any = False, **where: Any) -> Document[Any]:
        encryptor = None
        if keys is not None:
            encryptor = keyring.Encryptor(keys["keyring"], KemKey(keys["kemPriv"]), keys["trusted"])
        return self._collections(**where).document(key, encryptor=encryptor, verify=verify)

    def _config(self, url: str) -> Json:
        told: Json = json.loads(self._clients.setdefault(url, Client(url)).call("GET", "/config").body)
        return told

    def _root(self, passphrase: str) -> Json:
        return {"userId": root_of(passphrase).user_id}

    def _device(self, issuer: Json, subject: Json, scope: Json) -> Json:
        now_s = int(time())
        return certificates.mint_device(Signer(issuer["priv"]), subject["pub"], subject["kemPub"], scope, now_s=now_s)

    def _member(self, issuer: Json, subject: Json, collection: str, scope: Json) -> Json:
        signer, now_s = Signer(issuer["priv"]), int(time())
        return certificates.mint_member(signer, subject["pub"], subject["kemPub"], collection, scope, now_s=now_s)

    def _link(self, issuer: Json, collection: str, scope: Json, audience: list[str] | None = None) -> str:
        cap = certificates.mint_audience(Signer(issuer["priv"]), collection, scope, audience, now_s=int(time()))
        return certificates.encode_link(cap)

    def _append(self, key: str, data: Json, ts: int | None = None, keys: Json | None = None, **where: Any) -> Any:
        return self._document(key, keys, **where).append(data, ts=ts)

    def _append_many(self, key: str, datas: list[Json], **where: Any) -> Any:
        document = self._document(key, **where)
        with ThreadPoolExecutor(len(datas)) as threads:
            return list(threads.map(document.append, datas))

    def _append_anonymous(self, key: str, data: Json, signer: Json, **where: Any) -> Any:
        return self._document(key, **where).append_anonymous(data, author=Signer(signer["priv"]))

    def _pull(self, key: str, bounds: Json, **where: Any) -> Any:
        options = dict(bounds)
        field = options.pop("append_field", "items")
        return self._collections(**where).document(key, field=field).pull(**options).elements

    def _batch(self, names: list[str], params: Json, append_params: Json, **where: Any) -> Json:
        asks = {
            name: [
                DocumentRequest(params=each, **bounds)
                for each, bounds in zip(params.get(name, [{}]), append_params[name], strict=True)
            ]
            for name in names
        }
        pulled = self._collections(**where).batch_pull(asks)
        return {"collections": {name: [_entry(each) for each in entries] for name, entries in pulled.items()}}

    def _batch_many(self, name: str, requests: list[Json], **where: Any) -> list[Any]:
        asks = [DocumentRequest(params=each.get("params", {}), **each.get("options", {})) for each in requests]
        entries = self._collections(**where).batch_pull({name: asks})[name]
        return [{"error": each.code} if isinstance(each, NotPulled) else each.elements for each in entries]

    def _cursor(self, key: str, options: Json | None = None, keys: Json | None = None, **where: Any) -> int:
        named = dict(options or {})
        verify = named.pop("verify_author", False)
        if isinstance(verify, dict):
            verify = verify["expected_author_pubkey"]
        document = self._document(key, keys, verify, **where)
        self._cursors.append(document.cursor(named.pop("initial_items", ()), **named))
        return len(self._cursors) - 1

    def _cursor_pull(self, cursor: int) -> Any:
        return self._cursors[cursor].pull()

    def _cursor_items(self, cursor: int) -> Any:
        return self._cursors[cursor].items

    def _cursor_decrypted(self, cursor: int) -> Any:
        return self._cursors[cursor].decrypted_items()

    def _cursor_checkpoint(self, cursor: int) -> int:
        return self._cursors[cursor].checkpoint

    def _create_keyring(self, by: Json, recipients: list[str]) -> Json:
        return keyring.create(Signer(by["priv"]), recipients, now_s=int(time())).keyring.document()

    def _add_recipient(self, document: Json, by: Json, content_key: str, recipient: str) -> Json:
        parsed, raw = keyring.Keyring.parse(document), bytes.fromhex(content_key)
        return keyring.add_recipient(parsed, Signer(by["priv"]), raw, recipient, now_s=int(time())).document()

    def _rotate(self, document: Json, by: Json, retained: list[str]) -> Json:
        parsed = keyring.Keyring.parse(document)
        return keyring.rotate(parsed, Signer(by["priv"]), retained, now_s=int(time())).keyring.document()

    def _push(self, key: str, data: Json, base: str | None = None, by: Json | None = None, **where: Any) -> Any:
        # This client signs as whoever asks.
        return self._collections(**where).regular_document(key).push(data, base_hash=base)

    def _pull_document(self, key: str, with_keyring: bool = False, **where: Any) -> Json:
        pulled = self._collections(**where).regular_document(key).pull()
        return {
            "data": pulled.data or {},
            "hash": pulled.hash,
            "authorPubkey": pulled.author,
            "authorSignature": pulled.signature,
        }

    def _is_by(self, key: str, data: Json, author: str, signature: str) -> bool:
        return holds_for(Proof(author, signature), key, data, DOCUMENT_DOMAIN)

    def _keyring(self, key: str, by: Json, **where: Any) -> SharedKeyring:
        kem = KemKey(by["kemPriv"])
        return self._collections(**where).keyring(f"{key}/_keyring", kem, trusted_adders=[by["pub"]])

    def _share(self, key: str, by: Json, recipient: str, **where: Any) -> None:
        self._keyring(key, by, **where).add(recipient)

    def _unshare(self, key: str, by: Json, recipients: list[str], **where: Any) -> Json:
        return {"newEpoch": self._keyring(key, by, **where).remove(*recipients).current_epoch}

    def _shared_with(self, key: str, by: Json, **where: Any) -> Json:
        ring = self._keyring(key, by, **where)
        recipients = [{"subKem": each, "addedBy": by["pub"]} for each in ring.recipients()]
        return {"epoch": ring.encryptor().current_epoch, "recipients": recipients}

    def _ensure_all(self, key: str, by: Json, recipients: list[str], **where: Any) -> list[str]:
        with ThreadPoolExecutor(len(recipients)) as threads:
            done = threads.map(lambda each: self._keyring(key, by, **where).add(each), recipients)
            return ["added" for _ in done]


def _entry(entry: Any) -> Json:
    if isinstance(entry, NotPulled):
        return {"error": entry.code}
    return {"data": {"items": entry.elements}, "hash": entry.hash, "timestamp": entry.timestamp}
