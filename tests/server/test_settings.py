from __future__ import annotations

import tomllib
from typing import Any

import msgspec
import pytest

from strandline.collections.settings import CollectionsSettings
from strandline.engine import Options
from strandline.protocols.streams.settings import StreamsSettings
from strandline.protocols.topics.settings import TopicsSettings
from strandline.server.settings import (
    SECTIONS,
    SETTINGS,
    TOPICS_VARIABLES,
    VARIABLES,
    BadSettings,
    PipelineSettings,
    ServerSettings,
    Settings,
    StorageSettings,
    check,
    check_exposure,
    describe,
    is_loopback,
    toml,
)
from strandline.service.access import Keys
from strandline.service.settings import DeliverySettings, LimitSettings
from strandline.setting import expected, settings_of


def listening_on(host: str, keys: str = "", insecure: bool = False) -> Settings:
    return Settings(server=ServerSettings(host=host, api_keys=Keys.parse(keys), allow_insecure_no_auth=insecure))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost", "LOCALHOST"])
def test_on_loopback_no_keys_are_needed(host: str) -> None:
    assert is_loopback(host)
    check_exposure(listening_on(host))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "example.org", "127.1", "localhost.example.org"])
def test_beyond_loopback_keys_are_needed(host: str) -> None:
    with pytest.raises(BadSettings, match=r"without API keys.*STRANDLINE_API_KEYS.*INSECURE") as caught:
        check_exposure(listening_on(host))
    assert host in str(caught.value)
    check_exposure(listening_on(host, keys="secret"))
    check_exposure(listening_on(host, insecure=True))


def test_the_names_of_settings_are_unique_over_all_sections() -> None:
    names = [setting.name for section in SECTIONS.values() for setting in settings_of(section)]
    assert len(names) == len(set(names)) == len(SETTINGS)


def test_every_setting_has_a_sentence_and_says_what_it_expects() -> None:
    for setting in SETTINGS.values():
        assert setting.sentence[0].isupper(), setting
        assert setting.sentence.endswith("."), setting
        assert setting.name == "api_keys" or expected(setting.type), setting
    undeclared = {
        name: {field.name for field in msgspec.structs.fields(section)} - SETTINGS.keys()
        for name, section in SECTIONS.items()
    }
    assert {name for name, fields in undeclared.items() if fields} == {"storage"}, "the rest are options of the engine"


def test_the_variable_of_a_setting_follows_from_its_name() -> None:
    assert VARIABLES["STRANDLINE_PORT"] == VARIABLES["TOPICS_PORT"] == "port"
    assert VARIABLES["STRANDLINE_COLLECTIONS_CORS"] == "cors"
    assert set(VARIABLES.values()) == set(SETTINGS)
    assert {name for name in VARIABLES if not name.startswith("STRANDLINE_")} == set(TOPICS_VARIABLES)


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Settings().server.port = 1  # type: ignore[misc]


def test_the_storage_section_is_the_options_of_the_engine() -> None:
    options = Settings(storage=StorageSettings(data_dir="elsewhere", journal_bytes=1 << 20)).engine_options()
    assert isinstance(options, Options)
    assert options.journal_bytes == 1 << 20
    for name in Options.__struct_fields__:
        if name not in ("journal_bytes", "max_logs"):
            assert getattr(options, name) == getattr(Options(), name), name


def test_the_engine_takes_the_largest_record_that_the_protocol_allows_and_what_is_added_to_it() -> None:
    options = Settings(topics=TopicsSettings(max_record_bytes=20 << 20)).engine_options()
    assert options.max_record_bytes > 20 << 20


def test_the_lake_is_in_the_data_directory_unless_it_is_elsewhere() -> None:
    storage = StorageSettings(data_dir="here")
    assert Settings(storage=storage).lake == "here/lake"
    assert Settings(storage=storage, pipeline=PipelineSettings(lake="s3://there/lake")).lake == "s3://there/lake"


def test_a_slow_consumer_cannot_be_dropped_before_its_grace_ends() -> None:
    check(Settings(delivery=DeliverySettings(slow_consumer_grace_ms=10, slow_consumer_timeout_ms=10)))
    with pytest.raises(BadSettings, match=r"slow_consumer_timeout_ms is 9; .*slow_consumer_grace_ms \(10\)"):
        check(Settings(delivery=DeliverySettings(slow_consumer_grace_ms=10, slow_consumer_timeout_ms=9)))


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"limits": LimitSettings(max_body_bytes=99)}, r"max_append_bytes is 100; .*limits.max_body_bytes \(99\)"),
        ({"storage": StorageSettings(unsealed_bytes=99)}, r"max_append_bytes is 100; .*storage.unsealed_bytes \(99\)"),
    ],
)
def test_an_append_that_could_never_be_accepted_is_no_setting(other: dict[str, Any], message: str) -> None:
    with pytest.raises(BadSettings, match=message):
        check(Settings(streams=StreamsSettings(max_append_bytes=100), **other))
    check(Settings(**other))


def test_a_description_is_toml_with_every_setting() -> None:
    document = tomllib.loads(describe(Settings()))
    for name, section in SECTIONS.items():
        assert document[name].keys() == {setting.name for setting in settings_of(section)} - {"api_keys"}
    assert document["server"]["host"] == "127.0.0.1"
    assert document["storage"]["journal_bytes"] == 64 << 20


def test_a_description_tells_what_keys_allow_but_not_the_keys() -> None:
    text = describe(listening_on("::", keys="hush-1:read:tenant:|shared.,hush-2"))
    assert "hush" not in text
    first, second = [line for line in text.splitlines() if line.startswith("#   ")]
    assert first.endswith(" read tenant:|shared.")
    assert second.endswith(" read+write+delete+admin any name")
    assert "api_keys" not in tomllib.loads(text)["server"]


def test_a_description_says_when_there_are_no_keys() -> None:
    assert "# api_keys: none, every client may do everything\n" in describe(Settings())


@pytest.mark.parametrize("proxy", ["10.0.0.0/33", "1.2.3", "::g"])
def test_a_trusted_proxy_is_an_address_or_a_network(proxy: str) -> None:
    check(Settings(server=ServerSettings(trusted_proxies=("10.0.0.1/8", "::1"))))
    with pytest.raises(BadSettings, match="trusted_proxies"):
        check(Settings(server=ServerSettings(trusted_proxies=(proxy,))))


def test_hops_without_a_trusted_proxy_are_refused() -> None:
    hops = CollectionsSettings(trusted_proxy_hops=1)
    check(Settings(collections=hops, server=ServerSettings(trusted_proxies=("10.0.0.1",))))
    with pytest.raises(BadSettings, match=r"trusted_proxy_hops is 1.*STRANDLINE_TRUSTED_PROXIES"):
        check(Settings(collections=hops))


def test_defaults_are_shown_as_toml() -> None:
    for setting in SETTINGS.values():
        if setting.name != "api_keys":
            shown = tomllib.loads(f"value = {toml(setting.default)}")["value"]
            assert msgspec.convert(shown, setting.type) == setting.default, setting.name
