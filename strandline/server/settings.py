"""The settings of the server: what there is to choose, what is chosen unless somebody says otherwise, and what fits.

Where they are read from is in :mod:`strandline.server.settings_sources`. The name of a setting is unique over all
tables, because an environment variable names it without its table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from strandline.engine import Options
from strandline.engine.record import MAX_BATCH_BYTES, MAX_KEY_BYTES, MAX_NODE_BYTES, MAX_RECORD_BYTES
from strandline.protocols.access import Keys
from strandline.protocols.collections.config import CollectionsConfig
from strandline.protocols.collections.config_check import BadCollections
from strandline.protocols.collections.config_sources import Reader
from strandline.protocols.collections.declaration import Declared
from strandline.protocols.collections.settings import CollectionsSettings
from strandline.protocols.streams.settings import StreamsSettings
from strandline.protocols.tables.settings import TablesSettings
from strandline.protocols.topics.settings import TopicsSettings

_ENGINE = Options()
_TOPICS = TopicsSettings()
_STREAMS = StreamsSettings()
_COLLECTIONS = CollectionsSettings()

_BARE_KEY = re.compile("[A-Za-z0-9_-]+")

#: What a router or a dead-letter queue may add to a record that is as large as it may be: names and seqs.
STAMP_BYTES = 4096

Flag = Annotated[bool, Meta(description="true or false (or 1 or 0)")]
Text = Annotated[str, Meta(description="text")]
Texts = Annotated[tuple[str, ...], Meta(description="a list of texts, or texts with commas between them")]
Origins = Annotated[
    tuple[Annotated[str, Meta(pattern=r"^(\*|[a-z][a-z0-9+.-]*://[^\s/,]+)$")], ...],
    Meta(description="a list of origins like https://example.org, or * for all of them"),
]
Hosts = Annotated[
    tuple[Annotated[str, Meta(pattern=r"^(\*|(\*\.)?[^\s/,*:]+(:[0-9]+)?)$")], ...],
    Meta(description="a list of host names like events.example.org or *.example.org, or * for all of them"),
]
Networks = Annotated[
    tuple[Annotated[str, Meta(pattern=r"^[0-9a-fA-F.:]+(/[0-9]+)?$")], ...],
    Meta(description="a list of addresses or networks like 127.0.0.1 or 10.0.0.0/8"),
]
ConfigEndpoint = Annotated[Literal["off", "public", "role-filtered"], Meta(description="off, public or role-filtered")]
Hops = Annotated[int, Meta(ge=0, le=100, description="a whole number from 0 to 100")]
Host = Annotated[str, Meta(min_length=1, description="an address or a host name, if need be with a port: host:port")]
Directory = Annotated[str, Meta(min_length=1, description="the path of a directory")]
Port = Annotated[int, Meta(ge=0, le=65535, description="a port number from 0 to 65535; 0 takes a free one")]
LogLevel = Annotated[
    Literal["debug", "info", "warning", "error", "critical"],
    Meta(description="debug, info, warning, error or critical"),
]
Durability = Annotated[
    Literal["ephemeral", "memory", "disk", "fsync"], Meta(description="ephemeral, memory, disk or fsync")
]
Milliseconds = Annotated[int, Meta(ge=1, le=600_000, description="a whole number of milliseconds from 1 to 600000")]
Positive = Annotated[int, Meta(ge=1, lt=1 << 62, description="a whole number, 1 or more")]
Count = Annotated[int, Meta(ge=0, lt=1 << 62, description="a whole number, 0 or more")]
Cap = Annotated[int, Meta(ge=0, lt=1 << 62, description="a whole number, 0 or more; 0 is unlimited")]
Seconds = Annotated[float, Meta(ge=0, le=86_400, description="a number of seconds from 0 to 86400")]
Timeout = Annotated[float, Meta(gt=0, le=86_400, description="a number of seconds, over 0 and up to 86400")]
Latency = Annotated[float, Meta(gt=0, le=60_000, description="a number of milliseconds, over 0 and up to 60000")]
FlushInterval = Annotated[int, Meta(ge=0, le=60_000, description="a whole number of milliseconds from 0 to 60000")]
Heartbeat = Annotated[int, Meta(ge=1, le=1000, description="a whole number of milliseconds from 1 to 1000")]
BatchRecords = Annotated[int, Meta(ge=1, le=1_000_000, description="a whole number from 1 to 1000000")]
BatchBytes = Annotated[int, Meta(ge=1, le=MAX_BATCH_BYTES, description=f"a whole number from 1 to {MAX_BATCH_BYTES}")]
KeyBytes = Annotated[int, Meta(ge=1, le=MAX_KEY_BYTES, description=f"a whole number from 1 to {MAX_KEY_BYTES}")]
NodeBytes = Annotated[int, Meta(ge=1, le=MAX_NODE_BYTES, description=f"a whole number from 1 to {MAX_NODE_BYTES}")]
PipelineMode = Annotated[Literal["auto", "on", "off"], Meta(description="auto, on or off")]
Master = Annotated[
    str,
    Meta(
        pattern=r"^(local|local\[(\*|[1-9]\d*)\]|(spark|sc)://\S+|yarn|k8s://\S+)$",
        description="where Spark runs: local[*], local[N], spark://host:port, sc://host:port, yarn or k8s://…",
    ),
]
Memory = Annotated[
    str, Meta(pattern=r"^[1-9]\d*[mg]$", description="an amount of memory in megabytes or gigabytes, like 512m or 2g")
]


class BadSettings(Exception):
    """A setting that cannot be, or settings that cannot be together. The message names what to change."""


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the server listens, whom it lets in, and how it runs."""

    #: Where to listen; may bring its port along, host:port.
    host: Host = "127.0.0.1"
    #: The port to listen on; 0 takes a free one.
    port: Port = 4000
    #: The address is written here, atomically, once the server listens; empty: nowhere.
    port_file: Text = ""
    #: Who may do what: secret:scopes:prefixes, separated by commas. Without any, everybody may do everything.
    api_keys: Keys = Keys()
    #: Listen beyond this machine even though there are no keys.
    allow_insecure_no_auth: Flag = False
    #: Names that the server answers to while it has no keys, besides localhost, addresses and `host`: a name,
    #: `*.example.org` for all names below one, or `*` for any. Without keys, a name that an attacker chose would let a
    #: web page act as you, so none is allowed unless you name it.
    allowed_hosts: Hosts = ()
    #: Origins of web pages that may use the server, besides its own and those of this machine: https://example.org, or
    #: `*` for any. Without keys, requests of pages of other origins are refused; with keys, browsers keep the answers
    #: from them.
    allowed_origins: Origins = ()
    #: Addresses or networks of reverse proxies whose X-Forwarded-For, -Host and -Proto count. From anyone else these
    #: headers are ignored, because any client can send them.
    trusted_proxies: Networks = ()
    #: Ask for a key at the health and readiness probes too.
    probe_auth: Flag = False
    #: How much is logged: debug, info, warning, error or critical.
    log_level: LogLevel = "info"
    #: How long a server that is told to stop lets requests and streams finish.
    drain_seconds: Seconds = 10.0
    #: Close a connection whose request line and headers take longer than this to come in.
    head_timeout_seconds: Timeout = 10.0
    #: Close a connection when nothing more of a request's body comes in for this long.
    body_timeout_seconds: Timeout = 30.0
    #: Answer the hot requests from the parser's callback.
    fast_lane: Flag = True
    #: A Python file or module that declares tables and collections; empty: none.
    declare: Text = ""


class LimitSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Caps on what everybody together, or one key, can use up; 0 is unlimited except for the size of a body."""

    #: The body of a request, also when it is decompressed.
    max_body_bytes: BatchBytes = 64 << 20
    #: Values in a JSON body, at any depth. Records that are kept as they came do not count: how many of them one
    #: request may have is set by `topics.max_batch_records` and `streams.max_append_records`.
    max_body_values: Cap = 1_000_000
    #: A message on a WebSocket, in one frame or in many; a larger one closes the connection with 1009. Never more than
    #: `max_body_bytes`.
    max_message_bytes: BatchBytes = 16 << 20
    #: Messages on WebSockets that are not complete or not processed yet, of all connections together. Over it, the
    #: connections that hold the most are closed with 1013.
    max_unfinished_bytes: Cap = 64 << 20
    #: Answers and events that clients have not read yet, of all connections together. Over it, the clients that have
    #: held the most for the longest are disconnected.
    max_unread_bytes: Cap = 256 << 20
    #: Topics there can be.
    max_topics: Cap = _TOPICS.max_topics
    #: Routers there can be.
    max_routers: Cap = _TOPICS.max_routers
    #: Watch sessions there can be.
    max_watch_sessions: Cap = _TOPICS.max_watch_sessions
    #: Event streams, WebSockets and streams of records that are open at a time.
    max_sse_connections: Cap = 10_000
    #: The same, of one key.
    max_sse_connections_per_key: Cap = 1000
    #: Requests of one key that are under way at a time.
    max_inflight_per_key: Cap = 1000
    #: Connections that are open at a time; further ones are answered with 503 and closed. 0: the limit of open files,
    #: less 256 (or a quarter, if that is less) for the journal and other files. It is never more than that.
    max_connections: Count = 0
    #: Bytes of the live records of all topics together.
    max_total_bytes: Cap = _TOPICS.max_total_bytes


class TopicSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How much one request of the topics protocol may bring or ask for."""

    #: Records of one write.
    max_batch_records: BatchRecords = _TOPICS.max_batch_records
    #: Data and meta of one record.
    max_record_bytes: BatchBytes = _TOPICS.max_record_bytes
    #: The meta of one record.
    max_meta_bytes: BatchBytes = _TOPICS.max_meta_bytes
    #: The tag of one record.
    max_tag_bytes: KeyBytes = _TOPICS.max_tag_bytes
    #: The node of one record, and the name of a worker.
    max_node_bytes: NodeBytes = _TOPICS.max_node_bytes
    #: Records of one page, however many are asked for.
    max_limit: Positive = _TOPICS.max_limit
    #: Jobs of one claim, and seqs of one ack, nack or extend.
    max_claim: Positive = _TOPICS.max_claim
    #: Topics of one watch session or WebSocket.
    max_watch_topics: Positive = _TOPICS.max_watch_topics


class StreamTableSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The streams protocol: what an acknowledgement is worth, how much and how long."""

    #: What an acknowledged append to a new stream is: ephemeral, memory, disk or fsync, which is on the disk.
    stream_durability: Durability = _STREAMS.stream_durability
    #: The body of one append.
    max_append_bytes: BatchBytes = _STREAMS.max_append_bytes
    #: Records of one append: elements of its JSON array.
    max_append_records: BatchRecords = _STREAMS.max_append_records
    #: Records of one page.
    read_max_records: Positive = _STREAMS.read_max_records
    #: Payload of one page, but for a single record that is larger.
    read_max_bytes: Positive = _STREAMS.read_max_bytes
    #: How much payload one filtered read looks at.
    filter_scan_bytes: Positive = _STREAMS.filter_scan_bytes
    #: How long a long-poll waits unless it says otherwise.
    long_poll_ms: Milliseconds = _STREAMS.long_poll_ms
    #: A request that asks for more time than this is cut off.
    request_timeout_ms: Milliseconds = _STREAMS.request_timeout_ms
    #: An append that is not done after this time is answered without its outcome.
    append_timeout_ms: Milliseconds = _STREAMS.append_timeout_ms
    #: No search takes longer than this.
    search_timeout_ms: Milliseconds = _STREAMS.search_timeout_ms
    #: What the indexes that searches work on may take of the memory.
    search_memory_bytes: Positive = _STREAMS.search_memory_bytes
    #: Appends that wait for the disk before further ones are sent away.
    max_waiting_appends: Positive = _STREAMS.max_waiting_appends
    #: Their bytes.
    max_waiting_bytes: Positive = _STREAMS.max_waiting_bytes
    #: An event stream is ended after this time, for its client to connect anew.
    sse_rotate_seconds: Seconds = _STREAMS.sse_rotate_seconds
    #: Streams, and logs of any other kind, there can be.
    max_streams: Cap = _STREAMS.max_streams
    #: How often the server writes down its own metrics; 0: never.
    metrics_flush_ms: Count = _STREAMS.metrics_flush_ms
    #: Where traces go that come in without a stream; empty: they are refused.
    otlp_traces_stream: Text = _STREAMS.otlp_traces_stream
    #: Make that stream if it is not there.
    otlp_auto_create: Flag = _STREAMS.otlp_auto_create
    #: Let webhooks go to this machine, also over plain HTTP. Anyone who may create a subscription can then reach
    #: services of this machine that trust every local connection.
    webhook_allow_loopback: Flag = _STREAMS.webhook_allow_loopback
    #: Let webhooks go to this machine and to private networks, also over plain HTTP. Anyone who may create a
    #: subscription can then reach services there that trust every connection.
    webhook_allow_private: Flag = _STREAMS.webhook_allow_private


class CollectionTableSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What goes for all collections. The collections themselves are in tables of their own below."""

    #: A configuration file of a Starfish server, in JSON; its collections are served beside those of this file.
    config_file: Text = ""
    #: Names of one batch pull, and documents.
    max_collections_per_batch: Positive = _COLLECTIONS.max_collections_per_batch
    #: Elements that one batch pull may ask for.
    max_batch_append_elements: Positive = _COLLECTIONS.max_batch_append_elements
    #: Documents whose last segment is one of these are not shown by batch pulls.
    batch_key_deny_suffixes: Texts = _COLLECTIONS.batch_key_deny_suffixes
    #: How many proxies in front of the server add to X-Forwarded-For; 0: the header is not looked at. The nearest one
    #: must be in `server.trusted_proxies`.
    trusted_proxy_hops: Hops = _COLLECTIONS.trusted_proxy_hops
    #: Origins whose pages may call collections, besides those in `server.allowed_origins`: https://example.org, or `*`
    #: for any.
    cors: Origins = _COLLECTIONS.cors
    #: What GET /config tells: off (nothing), public (all collections) or role-filtered (those the caller has a
    #: role for).
    config_endpoint: ConfigEndpoint = "off"
    #: Let in who has no certificate, to what is public.
    anonymous: Flag = _COLLECTIONS.anonymous
    #: Signed requests that are remembered so that none is taken twice, each for ten minutes at the most and some 80
    #: bytes. When it is reached, signed requests are answered with 503.
    max_nonces: Positive = _COLLECTIONS.max_nonces
    #: How long a role resolver written in Python may take.
    role_resolver_timeout_ms: Milliseconds = _COLLECTIONS.role_resolver_timeout_ms
    #: Files with signed revocation lists; looked at again every five seconds.
    revocations: Texts = _COLLECTIONS.revocations


class DeliverySettings(msgspec.Struct, frozen=True, kw_only=True):
    """How records get to those who wait for them."""

    #: A watch session without an open stream is forgotten after this time.
    session_ttl_ms: Positive = _TOPICS.session_ttl_ms
    #: No heartbeat interval below this can be asked for. It can only be lowered, for tests.
    min_heartbeat_ms: Heartbeat = _TOPICS.min_heartbeat_ms
    #: A reader that takes nothing is left alone this long.
    slow_consumer_grace_ms: Count = _TOPICS.slow_consumer_grace_ms
    #: A reader that takes nothing for this long is disconnected.
    slow_consumer_timeout_ms: Positive = _TOPICS.slow_consumer_timeout_ms
    #: The latency above which the server counts as under pressure.
    target_latency_ms: Latency = 5.0


class StorageSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the engine keeps its files, and when it does what with them."""

    #: The data directory; made when it does not exist.
    data_dir: Directory = "data"
    #: Where old segments go: a directory or s3://bucket/prefix; empty: nowhere.
    cold_url: Text = _ENGINE.cold_url
    #: A journal of this size becomes a segment.
    journal_bytes: Positive = _ENGINE.journal_bytes
    #: Maximum bytes of records that are not in a segment yet. Writes slow down from half of it on and get 429 beyond
    #: it. 0: an eighth of the memory that the server may use, from 64 MiB to 512 MiB.
    unsealed_bytes: Count = _ENGINE.unsealed_bytes
    #: Records of the disk class are flushed at the latest after this time.
    flush_interval_ms: FlushInterval = _ENGINE.flush_interval_ms
    #: Sealed journal files are kept this long, for backups that can be restored to any moment.
    keep_journal_ms: Count = _ENGINE.keep_journal_ms
    #: In a log that is compacted, a record goes once a later one of its key has been there for this long.
    compact_after_ms: Count = _ENGINE.compact_after_ms
    #: Merging stops at segments of about this size.
    segment_bytes: Positive = _ENGINE.segment_bytes
    #: So many of the newest segments do not go to the cold tier.
    hot_segments: Count = _ENGINE.hot_segments
    #: So many bytes of them at the most; 0: no bound.
    hot_bytes: Cap = _ENGINE.hot_bytes
    #: Decompressed blocks of segments that are kept in memory.
    cache_bytes: Count = _ENGINE.cache_bytes
    #: Pieces of cold segments that are kept on the disk.
    cold_cache_bytes: Count = _ENGINE.cold_cache_bytes


class PipelineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The pipeline on Spark, which the server looks after: where it works, and when it is worth starting."""

    #: Process the history on Spark: auto (where Spark and Java are there), on (it is an error if they are not) or off.
    pipeline: PipelineMode = "auto"
    #: Where the lake is: a directory or s3://bucket/prefix; empty: the directory `lake` in the data directory.
    lake: Text = ""
    #: Where Spark runs: local[*], local[N], spark://host:port, sc://host:port (Spark Connect), yarn or k8s://….
    pipeline_master: Master = "local[*]"
    #: The memory of Spark's driver, which on a local master does all the work.
    pipeline_memory: Memory = "1g"
    #: While it runs, it looks for something new so often.
    pipeline_interval_s: Seconds = 10.0
    #: It is ended when it has had less to do than it would be started for, for this long.
    pipeline_idle_s: Seconds = 120.0
    #: It is started once so many records are new.
    pipeline_start_records: Positive = 100_000
    #: Or once the journal has grown by so much: by default what makes a segment.
    pipeline_start_bytes: Positive = 64 << 20
    #: Or once something new has waited for so long. What is deleted waits five minutes at the most.
    pipeline_start_s: Seconds = 3600.0


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    server: ServerSettings = ServerSettings()
    limits: LimitSettings = LimitSettings()
    topics: TopicSettings = TopicSettings()
    streams: StreamTableSettings = StreamTableSettings()
    collections: CollectionTableSettings = CollectionTableSettings()
    delivery: DeliverySettings = DeliverySettings()
    storage: StorageSettings = StorageSettings()
    pipeline: PipelineSettings = PipelineSettings()
    #: The tables below [collections] that describe collections, as they are in the file.
    collection_tables: Mapping[str, Any] = {}
    #: What was asked for and has no effect. To be told whoever starts the server; no setting by itself.
    warnings: tuple[str, ...] = ()

    def topics_settings(self) -> TopicsSettings:
        """What of it the topics protocol goes by."""
        known = set(TopicsSettings.__struct_fields__)
        tables = (self.limits, self.topics, self.delivery)
        chosen = {name: value for table in tables for name, value in msgspec.structs.asdict(table).items()}
        return TopicsSettings(**{name: value for name, value in chosen.items() if name in known})

    def streams_settings(self) -> StreamsSettings:
        """What of it the streams protocol goes by."""
        return StreamsSettings(**msgspec.structs.asdict(self.streams))

    def tables_settings(self) -> TablesSettings:
        """What of it tables go by."""
        return TablesSettings(slow_consumer_timeout_ms=self.delivery.slow_consumer_timeout_ms)

    def collections_config(self, declared: Declared | None = None) -> CollectionsConfig:
        """The collections of the settings, and those that were declared. Raises :class:`BadSettings`."""
        reader = Reader()
        reader.read_tables(self.collection_tables)
        if self.collections.config_file:
            reader.read_file(Path(self.collections.config_file))
        if declared is not None:
            declared.read_into(reader)
        chosen = msgspec.structs.asdict(self.collections)
        del chosen["config_file"]
        try:
            config = reader.config(CollectionsSettings(**chosen))
        except BadCollections as error:
            raise BadSettings(str(error)) from None
        most = min(self.limits.max_body_bytes, self.engine_options().max_record_bytes)
        larger = [
            f'collection "{one.name}": max_body_bytes is {one.max_body_bytes}, but none over {most} bytes gets through'
            for _, collections in config.scopes()
            for one in collections
            if one.append_only is not None and one.max_body_bytes > most
        ]
        return msgspec.structs.replace(config, warnings=(*config.warnings, *larger))

    def engine_options(self) -> Options:
        storage = msgspec.structs.asdict(self.storage)
        del storage["data_dir"]
        return Options(
            max_record_bytes=max(MAX_RECORD_BYTES, self.topics.max_record_bytes + STAMP_BYTES),
            **storage,
        )

    @property
    def lake(self) -> str:
        """Where the lake is, whether or not there is one yet."""
        return self.pipeline.lake or str(Path(self.storage.data_dir) / "lake")


#: The tables by their names in a file.
TABLES: dict[str, type[msgspec.Struct]] = {
    "server": ServerSettings,
    "limits": LimitSettings,
    "topics": TopicSettings,
    "streams": StreamTableSettings,
    "collections": CollectionTableSettings,
    "delivery": DeliverySettings,
    "storage": StorageSettings,
    "pipeline": PipelineSettings,
}


def check(settings: Settings) -> None:
    """Raise :class:`BadSettings` where settings contradict each other."""
    server, delivery = settings.server, settings.delivery
    for proxy in server.trusted_proxies:
        try:
            ip_network(proxy, strict=False)
        except ValueError:
            raise BadSettings(f"server.trusted_proxies: {proxy!r} is not an address or a network") from None
    if settings.collections.trusted_proxy_hops and not server.trusted_proxies:
        raise BadSettings(
            f"collections.trusted_proxy_hops is {settings.collections.trusted_proxy_hops}, but no proxy is trusted: "
            "set server.trusted_proxies (TOPICS_TRUSTED_PROXIES) to the addresses of the proxies"
        )
    limits = settings.limits
    if 0 < limits.max_unfinished_bytes < limits.max_message_bytes:
        raise BadSettings(
            f"limits.max_unfinished_bytes ({limits.max_unfinished_bytes}) must not be less than "
            f"limits.max_message_bytes ({limits.max_message_bytes}): no message of that size could be received"
        )
    if delivery.slow_consumer_timeout_ms < delivery.slow_consumer_grace_ms:
        raise BadSettings(
            f"delivery.slow_consumer_timeout_ms ({delivery.slow_consumer_timeout_ms}) must not be less than "
            f"delivery.slow_consumer_grace_ms ({delivery.slow_consumer_grace_ms})"
        )


def check_exposure(settings: Settings) -> None:
    """Raise :class:`BadSettings` if strangers could reach a server that asks nobody for a key."""
    server = settings.server
    if server.api_keys or server.allow_insecure_no_auth or is_loopback(server.host):
        return
    raise BadSettings(
        f"refusing to listen on {server.host} without API keys: everybody who can reach it could read, write and "
        "delete everything. Set TOPICS_API_KEYS, listen on 127.0.0.1, or set TOPICS_ALLOW_INSECURE_NO_AUTH=1"
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it. A name other than localhost may mean anything, so it does not count."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def describe(settings: Settings) -> str:
    """The settings as a TOML file that, read again, gives the same ones; except that keys are only told in comments."""
    lines: list[str] = []
    for name in TABLES:
        table: msgspec.Struct = getattr(settings, name)
        lines += ["", f"[{name}]"]
        for field in msgspec.structs.fields(table):
            value = getattr(table, field.name)
            lines += _describe_keys(value) if isinstance(value, Keys) else [f"{field.name} = {_toml(value)}"]
    lines += _describe_collections(settings.collection_tables)
    return "\n".join(lines[1:]) + "\n"


def _describe_keys(keys: Keys) -> list[str]:
    if not keys:
        return ["# api_keys: none, everybody may do everything"]
    # A masked secret in the place of the secret would be a key that everybody knows, once the file is used.
    return ["# api_keys are not shown; what they allow:", *(f"#   {access}" for access in keys.accesses())]


def _describe_collections(tables: Mapping[str, Any]) -> Iterator[str]:
    if "rate_limit" in tables:
        yield from _describe_table("[collections.rate_limit]", tables["rate_limit"])
    for collection in tables.get("collection", ()):
        yield from _describe_table("[[collections.collection]]", collection)
    for name, namespace in tables.get("namespace", {}).items():
        for collection in namespace.get("collection", ()):
            yield from _describe_table(f"[[collections.namespace.{_toml_key(name)}.collection]]", collection)


def _describe_table(heading: str, table: Mapping[str, Any]) -> Iterator[str]:
    yield from ("", heading)
    for name, value in table.items():
        yield f"{_toml_key(name)} = {_toml(value)}"


def _toml_key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _toml(name)


def _toml(value: Any) -> str:
    if isinstance(value, str):
        # TOML's strings are JSON's, but for this one character.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_toml_key(name)} = {_toml(one)}' for name, one in value.items())}}}"
    return repr(value)
