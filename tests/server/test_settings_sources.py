from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.collections.declaration import DeclaredCollections
from strandline.collections.roles import Roles
from strandline.server.settings import (
    SECTION_OF,
    TOPICS_VARIABLES,
    VARIABLES,
    BadSettings,
    Settings,
    describe,
    variable_of,
)
from strandline.server.settings_sources import FORMER_VARIABLES, OTHER_VARIABLES, WITHOUT_EFFECT, load
from strandline.service.access import Keys


def value_of(settings: Settings, field: str) -> Any:
    return getattr(getattr(settings, SECTION_OF[field]), field)


def file(directory: Path, text: str) -> Path:
    path = directory / "strandline.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_without_any_source_there_are_defaults() -> None:
    assert load() == Settings()
    assert not load().server.api_keys


def test_a_file_is_below_the_variables_and_those_are_below_the_options(tmp_path: Path) -> None:
    path = file(tmp_path, '[server]\nhost = "file"\nport = 1\nport_file = "f"\n[storage]\ndata_dir = "f"\n')
    environment = {"TOPICS_HOST": "variable", "TOPICS_PORT": "2", "TOPICS_DATA_DIR": "v"}
    settings = load(path, environment, {"--host": "option", "--data": "o"})
    server = settings.server
    assert (server.host, server.port, server.port_file, settings.storage.data_dir) == ("option", 2, "f", "o")
    assert settings.warnings == ()


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("host", "0.0.0.0", "0.0.0.0"),
        ("port", "0", 0),
        ("port_file", "run/port", "run/port"),
        ("advertise", "10.0.0.1:4000", "10.0.0.1:4000"),
        ("standby", "false", False),
        ("api_keys", "a:read,b::x|y", Keys.parse("a:read,b::x|y")),
        ("allow_insecure_no_auth", "1", True),
        ("probe_auth", "true", True),
        ("max_body_bytes", "1000", 1000),
        ("max_body_values", "9", 9),
        ("max_message_bytes", "1000", 1000),
        ("max_unfinished_bytes", "99999999", 99999999),
        ("max_unread_bytes", "1", 1),
        ("max_append_records", "8", 8),
        ("max_batch_records", "10", 10),
        ("max_record_bytes", "2097152", 2 << 20),
        ("max_meta_bytes", "100", 100),
        ("max_tag_bytes", "1024", 1024),
        ("max_node_bytes", "64", 64),
        ("max_limit", "5", 5),
        ("max_claim", "6", 6),
        ("max_watch_topics", "7", 7),
        ("max_consumers", "8", 8),
        ("max_group_members", "9", 9),
        ("data_dir", "/srv/data", "/srv/data"),
        ("cold_url", "/srv/cold", "/srv/cold"),
        ("replica", "s3://bucket/prefix", "s3://bucket/prefix"),
        ("follow", "s3://bucket/prefix", "s3://bucket/prefix"),
        ("follow_interval_ms", "1000", 1000),
        ("backups", "s3://bucket/backups", "s3://bucket/backups"),
        ("replica_interval_ms", "0", 0),
        ("replica_timeout_ms", "100", 100),
        ("replica_lease_ms", "3000", 3000),
        ("replica_backlog_bytes", "0", 0),
        ("journal_bytes", "4096", 4096),
        ("unsealed_bytes", "8192", 8192),
        ("hot_segments", "0", 0),
        ("hot_bytes", "9", 9),
        ("max_logs", "0", 0),
        ("max_routers", "1", 1),
        ("max_watch_sessions", "2", 2),
        ("max_sse_connections", "3", 3),
        ("max_sse_connections_per_key", "4", 4),
        ("max_inflight_per_key", "5", 5),
        ("max_total_bytes", "123456789012", 123456789012),
        ("min_heartbeat_ms", "50", 50),
        ("allowed_hosts", "a.example, *.b.example", ("a.example", "*.b.example")),
        ("allowed_origins", "https://a.example", ("https://a.example",)),
        ("trusted_proxies", "127.0.0.1, 10.0.0.0/8", ("127.0.0.1", "10.0.0.0/8")),
        ("tls_certificate", "", ""),
        ("tls_key", "", ""),
        ("traces_endpoint", "http://collector:4318", "http://collector:4318"),
        ("traces_headers", "a=b, c=d", ("a=b", "c=d")),
        ("traces_service", "events", "events"),
        ("traces_resource", "a=b, c=d", ("a=b", "c=d")),
        ("traces_sampler", "always_off", "always_off"),
        ("traces_ratio", "0.25", 0.25),
        ("traces_delay_ms", "100", 100),
        ("log_level", "debug", "debug"),
        ("log_format", "json", "json"),
        ("access_log", "true", True),
        ("audit_bytes", "4096", 4096),
        ("drain_seconds", "2.5", 2.5),
        ("head_timeout_seconds", "2.5", 2.5),
        ("body_timeout_seconds", "60", 60.0),
        ("max_connections", "500", 500),
        ("fast_lane", "false", False),
        ("declare", "polls.py", "polls.py"),
        ("session_ttl_ms", "1", 1),
        ("slow_consumer_grace_ms", "0", 0),
        ("slow_consumer_timeout_ms", "60000", 60000),
        ("target_latency_ms", "1", 1.0),
        ("flush_interval_ms", "10", 10),
        ("keep_journal_ms", "3600000", 3600000),
        ("compact_after_ms", "0", 0),
        ("segment_bytes", "1", 1),
        ("cache_bytes", "0", 0),
        ("cold_cache_bytes", "0", 0),
        ("pipeline", "off", "off"),
        ("lake", "s3://bucket/lake", "s3://bucket/lake"),
        ("pipeline_master", "spark://cluster:7077", "spark://cluster:7077"),
        ("pipeline_memory", "512m", "512m"),
        ("pipeline_project", "shop", "shop"),
        ("pipeline_jars", "a.jar,b.jar", ("a.jar", "b.jar")),
        ("pipeline_interval_s", "0.5", 0.5),
        ("pipeline_idle_s", "60", 60.0),
        ("pipeline_start_records", "1", 1),
        ("pipeline_start_bytes", "1", 1),
        ("pipeline_start_s", "0", 0.0),
        ("lake_alarm_s", "0", 0.0),
        ("stream_durability", "disk", "disk"),
        ("max_append_bytes", "1", 1),
        ("read_max_records", "2", 2),
        ("read_max_bytes", "3", 3),
        ("catch_up_max_bytes", "12", 12),
        ("catch_up_max_records", "13", 13),
        ("filter_scan_bytes", "4", 4),
        ("long_poll_ms", "5", 5),
        ("request_timeout_ms", "6", 6),
        ("append_timeout_ms", "7", 7),
        ("search_timeout_ms", "8", 8),
        ("search_memory_bytes", "9", 9),
        ("max_waiting_appends", "10", 10),
        ("max_waiting_bytes", "11", 11),
        ("sse_rotate_seconds", "1.5", 1.5),
        ("metrics_flush_ms", "0", 0),
        ("otlp_traces_stream", "traces", "traces"),
        ("otlp_logs_stream", "logs", "logs"),
        ("otlp_metrics_stream", "points", "points"),
        ("otlp_auto_create", "1", True),
        ("webhook_allow_loopback", "1", True),
        ("webhook_allow_private", "1", True),
        ("config_file", "", ""),
        ("max_collections_per_batch", "1", 1),
        ("max_batch_append_elements", "2", 2),
        ("batch_key_deny_suffixes", "_a, _b", ("_a", "_b")),
        ("trusted_proxy_hops", "0", 0),
        ("cors", "*", ("*",)),
        ("config_endpoint", "public", "public"),
        ("anonymous", "false", False),
        ("max_nonces", "4", 4),
        ("role_resolver_timeout_ms", "5", 5),
        ("revocations", "lists/a.json", ("lists/a.json",)),
    ],
)
def test_every_variable_sets_its_setting(name: str, text: str, value: object) -> None:
    for variable in [variable for variable, setting in VARIABLES.items() if setting == name]:
        settings = load(environment={variable: f" {text} "})
        assert value_of(settings, name) == value, variable
        assert settings.warnings == ()


def test_the_list_of_settings_above_is_complete() -> None:
    (mark,) = test_every_variable_sets_its_setting.pytestmark  # type: ignore[attr-defined]
    assert {case[0] for case in mark.args[1]} == set(SECTION_OF)


@pytest.mark.parametrize("variable", TOPICS_VARIABLES)
def test_our_name_of_a_variable_counts_before_the_name_in_topics(variable: str) -> None:
    name = TOPICS_VARIABLES[variable]
    if name == "max_logs":
        return
    ours, (default, other) = variable_of(name), two_values(name)
    settings = load(environment={ours: other, variable: default})
    assert settings == msgspec.structs.replace(load(environment={ours: other}), warnings=settings.warnings)
    assert settings.warnings == (f"{variable} has no effect because {ours} is set",)


def two_values(name: str) -> tuple[str, str]:
    """Two values that a setting may have."""
    if name in ("allow_insecure_no_auth", "probe_auth"):
        return "false", "true"
    return ("70", "80") if name in ("max_tag_bytes", "max_node_bytes", "max_body_bytes") else ("700", "800")


@pytest.mark.parametrize(
    ("environment", "maximum"),
    [
        ({"STRANDLINE_MAX_LOGS": "7", "TOPICS_MAX_TOPICS": "5", "STRANDLINE_MAX_STREAMS": "6"}, 5),
        ({"STRANDLINE_MAX_TOPICS": "7", "STRANDLINE_MAX_STREAMS": "0"}, 7),
        ({"STRANDLINE_MAX_TOPICS": "0", "STRANDLINE_MAX_STREAMS": "0"}, 0),
    ],
)
def test_of_the_names_for_the_number_of_logs_the_smallest_value_counts(
    tmp_path: Path, environment: dict[str, str], maximum: int
) -> None:
    path = file(tmp_path, "[limits]\nmax_logs = 4\nmax_topics = 3\n[streams]\nmax_streams = 2\n")
    assert load(environment=environment).limits.max_logs == maximum
    assert load(environment=environment).warnings == ()
    assert load(path).limits.max_logs == 2
    assert load(path, environment).limits.max_logs == maximum, "a variable is above the file"


@pytest.mark.parametrize(
    ("variable", "text", "expected"),
    [
        ("STRANDLINE_PIPELINE", "yes", "auto, on or off"),
        ("STRANDLINE_PIPELINE_MASTER", "local[0]", "where Spark runs: local[*], local[N]"),
        ("STRANDLINE_PIPELINE_MASTER", "mars", "where Spark runs: local[*], local[N]"),
        ("STRANDLINE_PIPELINE_MEMORY", "lots", "an amount of memory in megabytes or gigabytes"),
        ("TOPICS_PORT", "http", "a port number from 0 to 65535"),
        ("TOPICS_PORT", "65536", "a port number from 0 to 65535"),
        ("TOPICS_PORT", "", "a port number from 0 to 65535"),
        ("TOPICS_PORT", "-1", "a port number from 0 to 65535"),
        ("TOPICS_HOST", "", "an address or a host name"),
        ("TOPICS_HOST", ":4000", "an address or a host name"),
        ("TOPICS_HOST", "a:b:c", "an address or a host name"),
        ("TOPICS_HOST", "[::1", "an address or a host name"),
        ("TOPICS_HOST", "[::1]4000", "an address or a host name"),
        ("TOPICS_HOST", "localhost:", "a port number"),
        ("TOPICS_HOST", "localhost:99999", "a port number"),
        ("TOPICS_PROBE_AUTH", "yes", "true or false"),
        ("TOPICS_MAX_TOPICS", "-1", "a whole number, 0 or more; 0 is unlimited"),
        ("TOPICS_MAX_TOPICS", "many", "a whole number, 0 or more; 0 is unlimited"),
        ("TOPICS_MAX_TOPICS", "1.5", "a whole number, 0 or more; 0 is unlimited"),
        ("TOPICS_MAX_LIMIT", "0", "a whole number, 1 or more"),
        ("TOPICS_MAX_TAG_BYTES", "1025", "a whole number from 1 to 1024"),
        ("TOPICS_MAX_BODY_BYTES", "0", "a whole number from 1 to 268435456"),
        ("TOPICS_TEST_MIN_HEARTBEAT_MS", "1001", "a whole number of milliseconds from 1 to 1000"),
        ("TOPICS_DATA_DIR", " ", "the path of a directory"),
        ("STRANDLINE_LOG_LEVEL", "loud", "debug, info, warning, error or critical"),
        ("STRANDLINE_TARGET_LATENCY_MS", "0", "a number of milliseconds"),
        ("STRANDLINE_TARGET_LATENCY_MS", "nan", "a number of milliseconds"),
        ("STRANDLINE_DRAIN_SECONDS", "inf", "a number of seconds"),
        ("TOPICS_WAL_SHARDS", "0", "a whole number, 1 or more"),
        ("TOPICS_SEGMENT_MAX_AGE_MS", "soon", "a whole number, 0 or more"),
        (
            "STRANDLINE_COLLECTIONS_CORS",
            "https://example.org, example.org",
            "a list of origins like https://example.org",
        ),
        ("STRANDLINE_ALLOWED_HOSTS", "https://example.org", "a list of host names like events.example.org"),
        ("STRANDLINE_ALLOWED_ORIGINS", "example.org", "a list of origins like https://example.org"),
        ("STRANDLINE_TRUSTED_PROXIES", "proxy", "a list of addresses or networks"),
        ("STRANDLINE_COLLECTIONS_CONFIG_ENDPOINT", "on", "off, public or role-filtered"),
    ],
)
def test_a_bad_value_is_an_error_that_says_where_and_what_is_expected(variable: str, text: str, expected: str) -> None:
    with pytest.raises(BadSettings) as caught:
        load(environment={variable: text})
    assert str(caught.value).startswith(f"{variable} is '")
    assert f"; expected {expected}" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("0.0.0.0:5000", "0.0.0.0", 5000),
        ("example.org:0", "example.org", 0),
        ("::1", "::1", 4000),
        ("::", "::", 4000),
        ("[::1]", "::1", 4000),
        ("[::1]:5000", "::1", 5000),
    ],
)
def test_a_host_may_bring_its_port_along(text: str, host: str, port: int) -> None:
    for server in (load(environment={"TOPICS_HOST": text}).server, load(options={"--host": text}).server):
        assert (server.host, server.port) == (host, port)


def test_the_port_of_a_host_overrules_the_port_beside_it_and_says_so() -> None:
    settings = load(environment={"TOPICS_HOST": "::1", "TOPICS_PORT": "5000"})
    assert (settings.server.port, settings.warnings) == (5000, ())
    settings = load(environment={"TOPICS_HOST": "[::1]:6000", "TOPICS_PORT": "5000"})
    assert settings.server.port == 6000
    assert settings.warnings == ("TOPICS_PORT has no effect because TOPICS_HOST sets port 6000",)
    assert load(environment={"TOPICS_HOST": "a:6000", "TOPICS_PORT": "6000"}).warnings == ()


def test_a_port_of_a_higher_source_overrules_the_port_of_a_host() -> None:
    settings = load(environment={"TOPICS_HOST": "a:6000"}, options={"--port": 7000})
    assert (settings.server.host, settings.server.port, settings.warnings) == ("a", 7000, ())


@pytest.mark.parametrize("variable", WITHOUT_EFFECT)
def test_a_variable_without_effect_is_warned_about(variable: str) -> None:
    settings = load(environment={variable: "3"})
    (warning,) = settings.warnings
    assert warning.startswith(f"{variable} has no effect because ")
    assert load() == Settings()


@pytest.mark.parametrize(
    ("variable", "nearest"),
    [
        ("STRANDLINE_MAX_TOPCS", "STRANDLINE_MAX_TOPICS"),
        ("STRANDLINE_PROT", "STRANDLINE_PORT"),
        ("STRANDLINE_CORS", "STRANDLINE_COLLECTIONS_CORS"),
        ("TOPICS_MAX_TOPIC", "TOPICS_MAX_TOPICS"),
        ("TOPICS_LOG_LEVEL", "STRANDLINE_LOG_LEVEL"),
        ("STRANDLINE_XYZZY", None),
        *FORMER_VARIABLES.items(),
    ],
)
def test_an_unknown_variable_is_refused_with_the_nearest_one(variable: str, nearest: str | None) -> None:
    with pytest.raises(BadSettings) as caught:
        load(environment={variable: "1"})
    assert str(caught.value) == f"unknown setting '{variable}'" + (f"; did you mean '{nearest}'?" if nearest else "")


def test_variables_of_others_do_not_matter() -> None:
    kubernetes = {
        "STRANDLINE_PORT": "tcp://10.0.0.1:4000",
        "STRANDLINE_SERVICE_HOST": "10.0.0.1",
        "STRANDLINE_SERVICE_PORT": "4000",
        "STRANDLINE_SERVICE_PORT_HTTP": "4000",
        "STRANDLINE_PORT_4000_TCP": "tcp://10.0.0.1:4000",
        "STRANDLINE_PORT_4000_TCP_ADDR": "10.0.0.1",
        "STRANDLINE_EVENTS_PORT": "tcp://10.0.0.2:80",
        "TOPICS_PORT": "tcp://10.0.0.3:4000",
    }
    others = {"PATH": "/bin", "STREAMS_XYZZY": "1", **dict.fromkeys(OTHER_VARIABLES, "1")}
    assert load(environment=kubernetes | others) == Settings()


def test_bad_keys_are_an_error_that_does_not_quote_them() -> None:
    with pytest.raises(BadSettings, match="TOPICS_API_KEYS: API key 2: ") as caught:
        load(environment={"TOPICS_API_KEYS": "a,hush:hush"})
    assert "hush" not in str(caught.value)


def test_keys_in_a_file_are_text_or_a_list(tmp_path: Path) -> None:
    expected = Keys.parse("a:read,b")
    for text in ('"a:read,b"', '["a:read", "b"]'):
        assert load(file(tmp_path, f"[server]\napi_keys = {text}\n")).server.api_keys == expected
    for text in ("5", '["hush", 5]'):
        with pytest.raises(BadSettings, match=r"server.api_keys in .*strandline.toml: expected text") as caught:
            load(file(tmp_path, f"[server]\napi_keys = {text}\n"))
        assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[server]\nprot = 1\n", "unknown setting 'server.prot'; did you mean 'server.port'?"),
        ("[server]\nmax_topics = 1\n", "unknown setting 'server.max_topics'; did you mean 'limits.max_topics'?"),
        ("[server]\nxyzzy = 1\n", "unknown setting 'server.xyzzy'"),
        ("[limit]\nmax_topics = 1\n", "unknown section '[limit]'; did you mean '[limits]'?"),
        ("[xyzzy]\n", "unknown section '[xyzzy]'"),
        ("port = 1\n", "unknown setting 'port' outside of the sections; did you mean 'server.port'?"),
        ("server = 1\n", "server must be a table; write [server]"),
        ("[server]\nwarnings = 1\n", "unknown setting 'server.warnings'"),
    ],
)
def test_what_a_file_cannot_have_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = file(tmp_path, text)
    with pytest.raises(BadSettings) as caught:
        load(path)
    assert str(path) in str(caught.value)
    assert str(caught.value).endswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[server]\nport = "4000"\n', "server.port in {} is '4000'; expected a port number"),
        ("[server]\nport = true\n", "server.port in {} is True; expected a port number"),
        ("[server]\nprobe_auth = 1\n", "server.probe_auth in {} is 1; expected true or false"),
        ("[server]\nhost = 1\n", "server.host in {} is 1; expected an address"),
        ("[storage]\ndata_dir = ''\n", "storage.data_dir in {} is ''; expected the path"),
        ("[limits]\nmax_topics = 1979-05-27\n", "limits.max_topics in {} is datetime.date"),
    ],
)
def test_a_value_of_the_wrong_kind_in_a_file_is_an_error(tmp_path: Path, text: str, message: str) -> None:
    path = file(tmp_path, text)
    with pytest.raises(BadSettings) as caught:
        load(path)
    assert str(caught.value).startswith(message.format(path))


def test_a_whole_number_will_do_where_a_fraction_may_be(tmp_path: Path) -> None:
    assert load(file(tmp_path, "[delivery]\ntarget_latency_ms = 2\n")).delivery.target_latency_ms == 2.0


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match=r"cannot read .*absent.toml: No such file or directory"):
        load(tmp_path / "absent.toml")
    with pytest.raises(BadSettings, match=r"strandline.toml is not a TOML file: .*line 2"):
        load(file(tmp_path, "[server]\nport 5\n"))
    (tmp_path / "latin.toml").write_bytes(b"# \xe9\n")
    with pytest.raises(BadSettings, match=r"latin.toml is not a TOML file"):
        load(tmp_path / "latin.toml")


def test_a_standby_needs_a_replica() -> None:
    with pytest.raises(BadSettings, match=r"server\.standby needs a replica .*--replica"):
        load(environment={"STRANDLINE_STANDBY": "1"})
    assert load(options={"--standby": True, "--replica": "copy"}).server.standby


def test_a_follower_cannot_stand_by() -> None:
    with pytest.raises(BadSettings, match=r"server\.standby and storage\.follow exclude each other"):
        load(options={"--standby": True, "--follow": "copy"})


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(BadSettings, match="slow_consumer_timeout_ms"):
        load(environment={"STRANDLINE_SLOW_CONSUMER_TIMEOUT_MS": "10"})


texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(lambda text: text.strip() == text)
CHOICES = {
    "host": st.sampled_from(["localhost", "::", "0.0.0.0"]),
    "port": st.integers(0, 65535),
    "port_file": texts,
    "data_dir": texts,
    "cold_url": texts,
    "fast_lane": st.booleans(),
    "log_level": st.sampled_from(["debug", "error"]),
    "drain_seconds": st.floats(0, 86_400),
    "target_latency_ms": st.floats(0, 60_000, exclude_min=True),
    "max_total_bytes": st.integers(0, (1 << 62) - 1),
    "max_tag_bytes": st.integers(1, 1024),
}

COLLECTIONS = """
[collections]
cors = ["https://example.org", "https://example.com:8443"]

[collections.rate_limit]
window_ms = 60000
max_requests = 100

[[collections.collection]]
name = "events"
storage_path = "events/{date}"
readRoles = ["cap:read:events"]
write_roles = ["cap:write:events"]
field_permissions = {"a \\"field\\"" = {readRoles = ["admin"]}}

[collections.collection.append_only]
max_items = 5

[collections.collection.object_schema.properties.n]
minimum = 1.5

[[collections.namespace.acme.collection]]
name = "chat"
storage_path = "chat"
read_roles = ["public"]
append_only = true
"""


def test_collections_are_described_in_the_file(tmp_path: Path) -> None:
    config = load(file(tmp_path, COLLECTIONS)).collections_config()
    (events,) = config.collections
    (chat,) = config.namespaces["acme"]
    assert (events.name, events.storage_path, events.read_roles) == ("events", "events/{date}", ("cap:read:events",))
    assert events.append_only is not None
    assert events.append_only.max_items == 5
    assert chat.read_roles == ("public",)
    assert config.rate_limit is not None
    assert config.rate_limit.max_requests == 100
    assert config.settings.cors == ("https://example.org", "https://example.com:8443")


def test_collections_are_described_as_they_are_read(tmp_path: Path) -> None:
    settings = load(file(tmp_path, COLLECTIONS))
    assert load(file(tmp_path, describe(settings))) == settings


def test_everything_that_is_wrong_with_collections_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(BadSettings) as caught:
        load(file(tmp_path, "[[collections.collection]]\nname = 1\n[collections.namespace.pull]\n"))
    assert str(caught.value).splitlines() == [
        "the collections cannot be served:",
        "  - collections.collection: collection 1: name is 1; expected text",
        "  - collections.collection: collection 1: storage_path is missing",
        '  - namespace "pull": this name is reserved by the protocol',
        '  - namespace "pull": it must have at least one collection',
    ]


@pytest.mark.parametrize("regular", [False, True])
def test_a_body_that_no_limit_lets_through_is_a_warning(tmp_path: Path, regular: bool) -> None:
    text = COLLECTIONS.replace('name = "chat"', 'name = "chat"\nmax_body_bytes = 70001')
    if regular:
        text = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("append_only"))
    assert load(file(tmp_path, text)).warnings == ()
    (warning,) = load(file(tmp_path, f"{text}\n[limits]\nmax_body_bytes = 70000\n")).warnings
    assert warning == 'collection "chat": max_body_bytes is 70001, but the server accepts 70000 at most'


def test_what_is_doubtful_about_collections_is_a_warning(tmp_path: Path) -> None:
    roles = 'read_roles = ["public"]\nwrite_roles = ["public"]\n'
    text = f'[[collections.collection]]\nname = "a"\nstorage_path = "a"\n{roles}'
    (warning,) = load(file(tmp_path, text)).warnings
    assert warning.startswith('collection "a": write_roles has "public"')


@given(st.fixed_dictionaries({}, optional=CHOICES))
def test_a_description_read_again_gives_the_same_settings(
    tmp_path_factory: pytest.TempPathFactory, chosen: dict[str, object]
) -> None:
    settings = load(environment={variable_of(field): str(value) for field, value in chosen.items()})
    assert all(value_of(settings, field) == value for field, value in chosen.items())
    path = file(tmp_path_factory.getbasetemp(), describe(settings))
    assert load(path) == settings


def test_a_role_without_a_program_is_told_once_the_declarations_are_known() -> None:
    table = {"name": "a", "storage_path": "a", "read_roles": ["pubic"], "append_only": True}
    settings = msgspec.structs.replace(load(), collection_tables={"collection": [table]})
    told = 'collection "a": read_roles: no program gives the role "pubic"; did you mean "public"?'
    assert settings.collections_config().warnings == ()
    assert settings.collections_config(DeclaredCollections()).warnings == (told,)
    declared = DeclaredCollections(roles=Roles(enricher=lambda caller, params: ["pubic"]))
    assert settings.collections_config(declared).warnings == ()
