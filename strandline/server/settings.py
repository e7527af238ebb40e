"""The settings of a server: every section, the name of each setting, and the rules between settings.

A setting is declared once, as a field of a section (:mod:`strandline.setting`). The sections of the protocols and of
the engine are declared next to the code that uses them; the sections ``server`` and ``pipeline`` are here. The name of
a setting is unique over all sections, so its environment variable follows from it: ``port`` is ``STRANDLINE_PORT``.
:mod:`strandline.server.settings_sources` reads the values.
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

from strandline.collections.config import CollectionsConfig
from strandline.collections.config_sources import ConfigReader
from strandline.collections.declaration import DeclaredCollections
from strandline.collections.errors import BadCollections
from strandline.collections.roles import Roles
from strandline.collections.settings import CollectionsSettings
from strandline.engine import Options
from strandline.engine.record import MAX_RECORD_BYTES
from strandline.protocols.streams.settings import StreamsSettings
from strandline.protocols.topics.settings import TopicsSettings
from strandline.server.traces.settings import TracesSettings, headers_of, pairs, url_of
from strandline.service.access import Keys
from strandline.service.settings import DeliverySettings, LimitSettings
from strandline.setting import (
    Count,
    Directory,
    Flag,
    Origins,
    Positive,
    Seconds,
    Section,
    Setting,
    Text,
    Timeout,
    settings_of,
)

_BARE_KEY = re.compile("[A-Za-z0-9_-]+")

#: The bytes that a router or a dead-letter log may add to a record of the maximum size: names and sequence numbers.
STAMP_BYTES = 4096

Hosts = Annotated[
    tuple[Annotated[str, Meta(pattern=r"^(\*|(\*\.)?[^\s/,*:]+(:[0-9]+)?)$")], ...],
    Meta(description="a list of host names like events.example.org or *.example.org, or * for all of them"),
]
Networks = Annotated[
    tuple[Annotated[str, Meta(pattern=r"^[0-9a-fA-F.:]+(/[0-9]+)?$")], ...],
    Meta(description="a list of addresses or networks like 127.0.0.1 or 10.0.0.0/8"),
]
Paths = Annotated[
    tuple[Annotated[str, Meta(pattern=r"^[^\s,]+$")], ...], Meta(description="a list of files or URLs without spaces")
]
Host = Annotated[str, Meta(min_length=1, description="an address or a host name, optionally with a port: host:port")]
Port = Annotated[int, Meta(ge=0, le=65535, description="a port number from 0 to 65535; 0 takes a free port")]
LogLevel = Annotated[
    Literal["debug", "info", "warning", "error", "critical"],
    Meta(description="debug, info, warning, error or critical"),
]
LogFormat = Annotated[Literal["text", "json"], Meta(description="text or json")]
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
    """A value that is not allowed, or settings that contradict each other. The message says what to change."""


class ServerSettings(Section, frozen=True, kw_only=True):
    """Where the server listens, who may use it, and how it runs."""

    host: Annotated[Host, "Address to listen on, optionally with a port: host:port."] = "127.0.0.1"
    port: Annotated[Port, "Port to listen on; 0 takes a free port."] = 4000
    port_file: Annotated[
        Text, "File that the server writes its address to, as host:port, when it listens; empty: none."
    ] = ""
    advertise: Annotated[
        Text,
        "Address at which clients reach this server, as host:port. Standbys and replaced servers name it in their "
        "answers. Empty: the address that the server listens on.",
    ] = ""
    standby: Annotated[
        Flag,
        "Wait until the leader of the replica gives no sign of life, or for `strandline takeover`, then take over. A "
        "server whose data directory is not empty starts at once if no other server has taken over.",
    ] = False
    api_keys: Annotated[
        Keys,
        "API keys: secret:scopes:prefixes, separated by commas. Without API keys, every client may do everything.",
    ] = Keys()
    allow_insecure_no_auth: Annotated[
        Flag, "Accept connections from other machines although there are no API keys."
    ] = False
    allowed_hosts: Annotated[
        Hosts,
        "Names that a server without API keys answers to, in addition to localhost, addresses and `host`: a name, "
        "`*.example.org` for all names below one, or `*` for any. Without keys, a name that an attacker chose would "
        "let a web page act as you, so only the names in this list are allowed.",
    ] = ()
    allowed_origins: Annotated[
        Origins,
        "Origins of web pages that may use the server, in addition to its own and those of this machine: "
        "https://example.org, or `*` for any. Without API keys, requests of pages of other origins are refused; with "
        "keys, browsers keep the answers from those pages.",
    ] = ()
    trusted_proxies: Annotated[
        Networks,
        "Addresses or networks of reverse proxies whose X-Forwarded-For, -Host and -Proto are used. From other clients "
        "these headers are ignored, because any client can send them.",
    ] = ()
    tls_certificate: Annotated[
        Text,
        "PEM file with the certificate of the server and its chain, for HTTPS; empty: HTTP. A renewed file is used for "
        "new connections within seconds.",
    ] = ""
    tls_key: Annotated[Text, "PEM file with the unencrypted private key of `tls_certificate`."] = ""
    probe_auth: Annotated[Flag, "Require an API key for the health and readiness probes too."] = False
    log_level: Annotated[LogLevel, "Minimum level of log messages: debug, info, warning, error or critical."] = "info"
    log_format: Annotated[
        LogFormat, "Form of log lines on standard error: text, or json for one JSON object per line."
    ] = "text"
    access_log: Annotated[Flag, "Log one line per answered request, without the query string."] = False
    audit_bytes: Annotated[
        Count, "Maximum bytes of the audit log, `__audit__`, which records administrative changes; 0: no audit log."
    ] = 64 << 20
    backups: Annotated[
        Text,
        "Location of the backups of this server, a directory or s3://bucket/prefix, which `GET /v0/backups` and the "
        "console then list; empty: not known. The command `strandline backup` takes the backups.",
    ] = ""
    drain_seconds: Annotated[Seconds, "Maximum time that a stopping server waits for open requests and streams."] = 10.0
    head_timeout_seconds: Annotated[
        Timeout, "Maximum time for the request line and the headers of a request to arrive."
    ] = 10.0
    body_timeout_seconds: Annotated[Timeout, "Maximum time between two parts of a request's body."] = 30.0
    fast_lane: Annotated[Flag, "Answer frequent requests in the fast lane; false answers all through ASGI."] = True
    declare: Annotated[Text, "Python file or module that declares tables and collections; empty: none."] = ""


class StorageSettings(Options, frozen=True, kw_only=True):
    """The engine's options: where it keeps its files, and when it seals, merges and moves them."""

    data_dir: Annotated[Directory, "Data directory; created if it does not exist."] = "data"


class PipelineSettings(Section, frozen=True, kw_only=True):
    """The pipeline on Spark, which the server supervises: where it runs, and when it is worth starting."""

    pipeline: Annotated[
        PipelineMode,
        "Process the history on Spark: auto (if Spark and Java are installed), on (an error if they are not) or off.",
    ] = "auto"
    lake: Annotated[
        Text, "Location of the lake: a directory or s3://bucket/prefix; empty: `lake` in the data directory."
    ] = ""
    pipeline_master: Annotated[
        Master,
        "Spark master: local[*], local[N], spark://host:port, sc://host:port (Spark Connect), yarn or k8s://….",
    ] = "local[*]"
    pipeline_memory: Annotated[
        Memory, "Memory of the Spark driver, such as 512m or 2g. On a local master, the driver does all the work."
    ] = "1g"
    pipeline_project: Annotated[
        Text, "Directory of a project with declared tables, which the pipeline keeps current; empty: none."
    ] = ""
    pipeline_jars: Annotated[
        Paths,
        "Jars for Spark, such as those of Delta Lake. Without them, Spark fetches what a project needs from Maven.",
    ] = ()
    pipeline_interval_s: Annotated[Seconds, "Time between two rounds of a running pipeline."] = 10.0
    pipeline_idle_s: Annotated[Seconds, "Stop the pipeline after this time without enough new records to start it."] = (
        120.0
    )
    pipeline_start_records: Annotated[Positive, "Number of new records that starts the pipeline."] = 100_000
    pipeline_start_bytes: Annotated[Positive, "Growth of the journal that starts the pipeline."] = 64 << 20
    pipeline_start_s: Annotated[
        Seconds, "Maximum time that a new record waits for the pipeline to start. Deletions wait at most five minutes."
    ] = 3600.0
    lake_alarm_s: Annotated[
        Seconds,
        "Report the server as degraded when a log with `retain_until_in_lake` has a record that is this old and not in "
        "the lake; 0: never.",
    ] = 7200.0


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    server: ServerSettings = ServerSettings()
    limits: LimitSettings = LimitSettings()
    topics: TopicsSettings = TopicsSettings()
    streams: StreamsSettings = StreamsSettings()
    collections: CollectionsSettings = CollectionsSettings()
    delivery: DeliverySettings = DeliverySettings()
    storage: StorageSettings = StorageSettings()
    pipeline: PipelineSettings = PipelineSettings()
    traces: TracesSettings = TracesSettings()
    #: The tables below [collections] that configure collections, as they are in the file.
    collection_tables: Mapping[str, Any] = {}
    #: Messages for the operator about settings without effect.
    warnings: tuple[str, ...] = ()

    def collections_config(self, declared: DeclaredCollections | None = None) -> CollectionsConfig:
        """The configured collections and the declared ones. Raises :class:`BadSettings`."""
        reader = ConfigReader()
        reader.read_tables(self.collection_tables)
        if self.collections.config_file:
            reader.read_file(Path(self.collections.config_file))
        if declared is not None:
            declared.read_into(reader)
        try:
            # Before the declarations are known, any role may have a function.
            has_functions = declared is None or declared.roles != Roles()
            config = reader.config(self.collections, has_role_functions=has_functions)
        except BadCollections as error:
            raise BadSettings(str(error)) from None
        most = min(self.limits.max_body_bytes, self.engine_options().max_record_bytes)
        larger = [
            f'collection "{one.name}": max_body_bytes is {one.max_body_bytes}, but the server accepts {most} at most'
            for _, collections in config.scopes()
            for one in collections
            if one.max_body_bytes > most
        ]
        return msgspec.structs.replace(config, warnings=(*config.warnings, *larger))

    def engine_options(self) -> Options:
        """The storage section, with the bounds that follow from other sections."""
        return msgspec.structs.replace(
            self.storage,
            max_record_bytes=max(
                MAX_RECORD_BYTES, self.topics.max_record_bytes + STAMP_BYTES, self.streams.max_append_bytes
            ),
            max_logs=self.limits.max_logs,
            max_total_bytes=self.limits.max_total_bytes,
        )

    @property
    def lake(self) -> str:
        """The location of the lake, which may not exist yet."""
        return self.pipeline.lake or str(Path(self.storage.data_dir) / "lake")


# --- names -----------------------------------------------------------------------------------------------------

#: The sections by their names in a file.
SECTIONS: dict[str, type[msgspec.Struct]] = {
    field.name: field.type
    for field in msgspec.structs.fields(Settings)
    if field.name not in ("collection_tables", "warnings")
}
#: Every setting by name, and the section of each setting.
SETTINGS: dict[str, Setting] = {one.name: one for section in SECTIONS.values() for one in settings_of(section)}
SECTION_OF: dict[str, str] = {one.name: name for name, section in SECTIONS.items() for one in settings_of(section)}

#: Settings whose values may be secrets.
SECRETS = frozenset(("traces_headers",))

#: Second names of a setting, by (section, name). Topics and streams are both logs, so their maximum numbers are one
#: setting; the server uses the smallest value.
OTHER_NAMES: dict[tuple[str, str], str] = {("limits", "max_topics"): "max_logs", ("streams", "max_streams"): "max_logs"}

#: The prefix of environment variables. Variables of collections include the section, because a name such as
#: STRANDLINE_ANONYMOUS would seem to apply to every protocol.
PREFIX = "STRANDLINE_"
COLLECTIONS_PREFIX = "STRANDLINE_COLLECTIONS_"

#: The variables in the published documents of the topics protocol, and the setting of each.
TOPICS_VARIABLES: dict[str, str] = {
    "TOPICS_HOST": "host",
    "TOPICS_PORT": "port",
    "TOPICS_PORT_FILE": "port_file",
    "TOPICS_API_KEYS": "api_keys",
    "TOPICS_ALLOW_INSECURE_NO_AUTH": "allow_insecure_no_auth",
    "TOPICS_PROBE_AUTH": "probe_auth",
    "TOPICS_MAX_BODY_BYTES": "max_body_bytes",
    "TOPICS_MAX_BATCH_RECORDS": "max_batch_records",
    "TOPICS_MAX_RECORD_BYTES": "max_record_bytes",
    "TOPICS_MAX_META_BYTES": "max_meta_bytes",
    "TOPICS_MAX_TAG_BYTES": "max_tag_bytes",
    "TOPICS_MAX_NODE_BYTES": "max_node_bytes",
    "TOPICS_MAX_LIMIT": "max_limit",
    "TOPICS_MAX_CLAIM": "max_claim",
    "TOPICS_MAX_WATCH_TOPICS": "max_watch_topics",
    "TOPICS_MAX_TOPICS": "max_logs",
    "TOPICS_MAX_ROUTERS": "max_routers",
    "TOPICS_MAX_WATCH_SESSIONS": "max_watch_sessions",
    "TOPICS_MAX_SSE_CONNECTIONS": "max_sse_connections",
    "TOPICS_MAX_SSE_CONNECTIONS_PER_KEY": "max_sse_connections_per_key",
    "TOPICS_MAX_INFLIGHT_PER_KEY": "max_inflight_per_key",
    "TOPICS_MAX_TOTAL_BYTES": "max_total_bytes",
    "TOPICS_DATA_DIR": "data_dir",
    "TOPICS_COLD_DIR": "cold_url",
    "TOPICS_SEGMENT_MAX_BYTES": "journal_bytes",
    "TOPICS_HOT_RETAIN_SEGMENTS": "hot_segments",
    "TOPICS_HOT_RETAIN_BYTES": "hot_bytes",
    "TOPICS_TEST_MIN_HEARTBEAT_MS": "min_heartbeat_ms",
}

#: The options of ``strandline serve``, and the setting of each.
OPTIONS: dict[str, str] = {
    "--host": "host",
    "--port": "port",
    "--port-file": "port_file",
    "--data": "data_dir",
    "--replica": "replica",
    "--standby": "standby",
    "--advertise": "advertise",
    "--follow": "follow",
    "--no-fast-lane": "fast_lane",
    "--log-level": "log_level",
    "--pipeline": "pipeline",
    "--lake": "lake",
    "--declare": "declare",
    "--collections": "config_file",
}


def variable_of(name: str, section: str | None = None) -> str:
    """The environment variable of a setting, or of a second name in this section."""
    prefix = COLLECTIONS_PREFIX if (section or SECTION_OF[name]) == "collections" else PREFIX
    return prefix + name.upper()


#: All variables, and the setting of each.
VARIABLES: dict[str, str] = {
    **{variable_of(name): name for name in SETTINGS},
    **{variable_of(other, section): name for (section, other), name in OTHER_NAMES.items()},
    **TOPICS_VARIABLES,
}


# --- rules -----------------------------------------------------------------------------------------------------


def check(settings: Settings) -> None:
    """Raise :class:`BadSettings` if settings contradict each other."""
    server, delivery = settings.server, settings.delivery
    for proxy in server.trusted_proxies:
        try:
            ip_network(proxy, strict=False)
        except ValueError:
            raise BadSettings(
                f"server.trusted_proxies has {proxy!r}; expected an address or a network like 127.0.0.1 or 10.0.0.0/8"
            ) from None
    if settings.collections.trusted_proxy_hops and not server.trusted_proxies:
        raise BadSettings(
            f"collections.trusted_proxy_hops is {settings.collections.trusted_proxy_hops}, but no proxy is trusted: "
            "set server.trusted_proxies (STRANDLINE_TRUSTED_PROXIES) to the addresses of the proxies"
        )
    if bool(server.tls_certificate) != bool(server.tls_key):
        raise BadSettings("server.tls_certificate and server.tls_key belong together: set both, or none")
    if server.tls_certificate and settings.pipeline.pipeline_project:
        raise BadSettings(
            "pipeline.pipeline_project needs a server without TLS, because its pipeline connects to the server by an "
            "address that no certificate names: use a proxy for TLS, or run `strandline pipeline run` separately"
        )
    if server.standby and settings.storage.follow:
        raise BadSettings(
            "server.standby and storage.follow exclude each other: a follower does not take over. Remove "
            "one of them, and run the standby as a server of its own with storage.replica"
        )
    if server.standby and not settings.storage.replica:
        raise BadSettings(
            "server.standby needs a replica to take over from: set storage.replica (STRANDLINE_REPLICA, --replica)"
        )
    if settings.storage.follow and settings.storage.replica:
        raise BadSettings(
            "storage.follow and storage.replica exclude each other: a server either follows a replica and answers "
            "reads, or writes to a replica. Remove one of them"
        )
    _check_traces(settings.traces)
    limits = settings.limits
    if 0 < limits.max_unfinished_bytes < limits.max_message_bytes:
        raise BadSettings(
            f"limits.max_unfinished_bytes is {limits.max_unfinished_bytes}; expected at least limits.max_message_bytes "
            f"({limits.max_message_bytes}), because the server could not receive a message of that size"
        )
    append = settings.streams.max_append_bytes
    # A server with a lower limit elsewhere need not lower the default as well.
    if append != StreamsSettings().max_append_bytes:
        for name, most in (
            ("limits.max_body_bytes", limits.max_body_bytes),
            ("storage.unsealed_bytes", settings.storage.unsealed_bytes),
        ):
            if 0 < most < append:
                raise BadSettings(
                    f"streams.max_append_bytes is {append}; expected at most {name} ({most}), because the server could "
                    f"not accept an append of that size: lower streams.max_append_bytes, or raise {name}"
                )
    if delivery.slow_consumer_timeout_ms < delivery.slow_consumer_grace_ms:
        raise BadSettings(
            f"delivery.slow_consumer_timeout_ms is {delivery.slow_consumer_timeout_ms}; expected at least "
            f"delivery.slow_consumer_grace_ms ({delivery.slow_consumer_grace_ms})"
        )


def _check_traces(traces: TracesSettings) -> None:
    try:
        if traces.traces_endpoint:
            url_of(traces.traces_endpoint)
    except ValueError as error:
        raise BadSettings(f"traces.traces_endpoint: {error}") from None
    for name, read in (("traces_headers", headers_of), ("traces_resource", lambda texts: list(pairs(texts)))):
        try:
            read(getattr(traces, name))
        except ValueError as error:
            raise BadSettings(f"traces.{name}: {error}; expected name=value, separated by commas") from None


def check_exposure(settings: Settings) -> None:
    """Raise :class:`BadSettings` if other machines could reach a server without API keys."""
    server = settings.server
    if server.api_keys or server.allow_insecure_no_auth or is_loopback(server.host):
        return
    raise BadSettings(
        f"refusing to listen on {server.host} without API keys: every client that can connect could read, write and "
        "delete everything. Set STRANDLINE_API_KEYS, listen on 127.0.0.1, or set STRANDLINE_ALLOW_INSECURE_NO_AUTH=1"
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the host. A name other than localhost may stand for any address."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def describe(settings: Settings) -> str:
    """The settings as a TOML file that yields the same settings when read, except for secrets, which are not in it."""
    lines: list[str] = []
    for name, section in SECTIONS.items():
        lines += ["", f"[{name}]"]
        for setting in settings_of(section):
            value = getattr(getattr(settings, name), setting.name)
            if isinstance(value, Keys):
                lines += _describe_keys(value)
            elif setting.name in SECRETS and value:
                lines.append(f"# {setting.name} is not shown")
            else:
                lines.append(f"{setting.name} = {toml(value)}")
    lines += _describe_collections(settings.collection_tables)
    return "\n".join(lines[1:]) + "\n"


def _describe_keys(keys: Keys) -> list[str]:
    if not keys:
        return ["# api_keys: none, every client may do everything"]
    # A masked secret would become a publicly known API key if somebody used the file.
    return ["# api_keys are not shown; they allow:", *(f"#   {access}" for access in keys.accesses())]


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
        yield f"{_toml_key(name)} = {toml(value)}"


def _toml_key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else toml(name)


def toml(value: Any) -> str:
    """A value as TOML."""
    if isinstance(value, str):
        # TOML strings equal JSON strings, except for this character.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_toml_key(name)} = {toml(one)}' for name, one in value.items())}}}"
    return repr(value)
