"""The files that run Strandline elsewhere: the images, the services of compose, and the workflows."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from support.document_tables import ROOT
from support.server_process import ServerProcess

from strandline.cli.command_class import Group
from strandline.cli.commands import load as load_command
from strandline.server.settings import Settings
from strandline.server.settings_sources import load

#: Names of files and directories that a clone has and an image must not.
NOT_IN_IMAGES = (".git", ".venv", "data", "tests")


class Instruction(NamedTuple):
    stage: str
    word: str
    rest: str


def instructions() -> list[Instruction]:
    """The instructions of the Dockerfile, each on one line, with the stage that they belong to."""
    text = re.sub(r"^\s*#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    stage, found = "", []
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        if line.strip():
            word, rest = line.split(maxsplit=1)
            stage = rest.rpartition(" AS ")[2] if word == "FROM" else stage
            found.append(Instruction(stage, word, rest))
    return found


INSTRUCTIONS = instructions()
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
BUILD_ARGUMENTS: dict[str, str] = SERVICES["server"]["build"]["args"]


def of(stage: str, word: str) -> list[str]:
    return [found.rest for found in INSTRUCTIONS if (found.stage, found.word) == (stage, word)]


def environment(stage: str) -> dict[str, str]:
    pairs = [pair for rest in of(stage, "ENV") for pair in shlex.split(rest)]
    return dict(pair.split("=", 1) for pair in pairs)


def parses(arguments: list[str]) -> None:
    """The command line accepts these arguments."""
    command, rest = load_command(arguments[0]), arguments[1:]
    while isinstance(command, Group):
        command, rest = command.commands[rest[0]], rest[1:]
    command.make_context("strandline", rest)


def compose_settings() -> Settings:
    given = {name: re.sub(r"\$\{[^}]*\}", "secret", value) for name, value in SERVICES["server"]["environment"].items()}
    given["STRANDLINE_API_KEYS"] = "first,second:read"
    return load(environment={**environment("server"), **given})


# --- the images -----------------------------------------------------------------------------------------------------


def test_stages_are_declared_before_they_are_used() -> None:
    seen: set[str] = set()
    for _, word, rest in INSTRUCTIONS:
        if word == "FROM":
            source, _, stage = rest.partition(" AS ")
            assert source in seen or source in ("python:${PYTHON}-slim", "scratch")
            seen.add(stage)
        for name in re.findall(r"--from=(\S+)", rest):
            assert name in seen
    assert {"server", "spark"} <= seen
    assert [found.stage for found in INSTRUCTIONS][-1] == "server", "the default is the last stage"


def test_what_is_copied_exists_and_the_rest_of_a_clone_stays_out() -> None:
    for _, word, rest in INSTRUCTIONS:
        if word == "COPY" and "--from" not in rest:
            for source in rest.split()[:-1]:
                assert (ROOT / source).exists()
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert set(NOT_IN_IMAGES) <= set(ignored)
    for needed in (
        "strandline",
        "docs",
        "clients",
        "examples",
        "tools",
        "mkdocs.yml",
        "requirements.lock",
        "README.md",
    ):
        assert needed not in ignored


def test_the_extras_exist() -> None:
    declared = (ROOT / "pyproject.toml").read_text()
    named = re.findall(r"strandline\[(\w+)\]", (ROOT / "Dockerfile").read_text())
    (default,) = of("root", "ARG")
    for extra in (*named, *default.removeprefix("EXTRAS=").split(","), *BUILD_ARGUMENTS["EXTRAS"].split(",")):
        assert re.search(rf"^{extra} = \[", declared, re.MULTILINE)


def test_images_run_as_a_user_without_rights() -> None:
    for stage in ("server", "spark"):
        assert of(stage, "USER") == ["strandline"]
    for stage in ("root", "spark"):
        assert any("useradd --system --uid 10001" in rest for rest in of(stage, "RUN"))
    assert any("--chown=10001:10001" in rest for rest in of("server", "COPY"))


def test_the_image_of_the_server_starts_with_its_settings() -> None:
    settings = compose_settings()
    assert settings.server.host == "0.0.0.0"
    assert settings.storage.data_dir == "/data/strandline"
    assert settings.pipeline.pipeline == "off"
    assert of("server", "EXPOSE") == [str(settings.server.port)]


@pytest.mark.parametrize("stage", ["server", "spark"])
def test_an_image_runs_a_command_that_exists(stage: str) -> None:
    assert of(stage, "ENTRYPOINT") == ['["strandline"]']
    (command,) = of(stage, "CMD")
    parses(json.loads(command))


def test_the_health_check_tells_a_server_that_runs_from_one_that_does_not(tmp_path: Path) -> None:
    (check,) = of("server", "HEALTHCHECK")
    program, *arguments = json.loads(check[check.index("[") :])
    assert program == "python"
    server = ServerProcess(tmp_path / "data").start()
    asked = [sys.executable, *(argument.replace("http://127.0.0.1:4000", server.url) for argument in arguments)]
    try:
        assert subprocess.run(asked, capture_output=True).returncode == 0
    finally:
        server.end()
    assert subprocess.run(asked, capture_output=True).returncode != 0


# --- compose --------------------------------------------------------------------------------------------------------


def test_mounted_files_and_volumes_exist() -> None:
    for service in SERVICES.values():
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (ROOT / source).is_dir(), source
            else:
                assert source in COMPOSE["volumes"]
        for secret in service.get("secrets", ()):
            assert secret in COMPOSE["secrets"]
        assert set(service.get("depends_on", ())) <= SERVICES.keys()


def test_services_are_reachable_from_this_machine_only() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_the_pipeline_reads_from_the_server_and_both_see_the_same_lake() -> None:
    command = SERVICES["pipeline"]["command"]
    parses(command)
    settings = compose_settings()
    assert command[command.index("--url") + 1] == f"http://server:{settings.server.port}"
    assert command[command.index("--lake") + 1] == settings.pipeline.lake
    assert "lake:/lake" in SERVICES["server"]["volumes"]
    assert "lake:/lake" in SERVICES["pipeline"]["volumes"]


def test_the_server_has_time_to_stop() -> None:
    assert int(SERVICES["server"]["stop_grace_period"].rstrip("s")) >= compose_settings().server.drain_seconds + 10


def test_prometheus_scrapes_the_server_with_the_key_that_it_gets() -> None:
    config = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    (job,) = config["scrape_configs"]
    assert job["static_configs"] == [{"targets": [f"server:{compose_settings().server.port}"]}]
    (secret,) = SERVICES["prometheus"]["secrets"]
    assert job["authorization"]["credentials_file"] == f"/run/secrets/{secret}"
    for name in config["rule_files"]:
        assert (ROOT / "deploy/prometheus" / name).exists()


def test_grafana_finds_its_data_source_and_its_dashboards() -> None:
    provisioning = ROOT / "deploy/grafana/provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources/prometheus.yaml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = yaml.safe_load((provisioning / "dashboards/strandline.yaml").read_text())["providers"]
    targets = [volume.split(":")[1] for volume in SERVICES["grafana"]["volumes"]]
    assert provider["options"]["path"] in targets
    dashboards = list((ROOT / "deploy/grafana/dashboards").glob("*.json"))
    assert dashboards
    for dashboard in dashboards:
        assert json.loads(dashboard.read_text())["panels"]


# --- workflows ------------------------------------------------------------------------------------------------------


def test_workflows_call_what_exists() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for file in (ROOT / ".github/workflows").glob("*.yml"):
        for job in yaml.safe_load(file.read_text())["jobs"].values():
            for step in job["steps"]:
                for target in re.findall(r"\bmake ([a-z-]+)", step.get("run", "")):
                    assert target in targets
                for path in re.findall(r"(?<![\w-])(?:tests|strandline|clients|\.ci)/\S*\w", step.get("run", "")):
                    assert (ROOT / path).exists(), path


def test_hooks_before_a_commit_use_programs_of_the_environment() -> None:
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    programs = {hook["entry"].split()[0] for hook in repository["hooks"]}
    directory = Path(sys.executable).parent
    assert all((directory / Path(program).name).exists() for program in programs)


# --- examples -------------------------------------------------------------------------------------------------------


def test_the_example_of_collections_is_valid() -> None:
    ((_, collections),) = load(ROOT / "examples/collections.toml").collections_config().scopes()
    names = [collection.name for collection in collections]
    assert names == ["guestbook", "diary", "messages", "measurements", "members"]
