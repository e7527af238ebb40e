"""The configuration files of other programs that how-to guides show: nginx, Kubernetes, Prometheus."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from configparser import RawConfigParser
from pathlib import Path

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from support.document_tables import FULL_SNAPSHOT, ROOT
from support.guide import blocks, free_port
from support.prerequisites import need
from support.server_process import START_SECONDS, ServerProcess
from websockets.sync.client import connect

from strandline.server.metrics_text import process_text, render_text
from strandline.server.settings_sources import load

HOW_TO = ROOT / "docs/how-to"


def block_of(page: str, kind: str, begin: str = "") -> str:
    """The only block of this kind that begins like this."""
    texts = [block.text for block in blocks((HOW_TO / page).read_text()) if block.kind == kind]
    (text,) = [text for text in texts if text.startswith(begin)]
    return text


# --- nginx ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of nginx as the page configures it, but without TLS, in front of a server."""
    need(("nginx",))
    directory = tmp_path_factory.mktemp("nginx")
    config = directory / "strandline.toml"
    config.write_text(block_of("nginx.md", "toml") + 'allowed_hosts = ["events.example.org"]\n')
    server = ServerProcess(directory / "data", config=config).start()
    port = free_port()
    text = block_of("nginx.md", "nginx")
    for shown, here in {
        "127.0.0.1:4000": f"127.0.0.1:{server.port}",
        "listen 443 ssl": f"listen 127.0.0.1:{port}",
        "/var/log/nginx": str(directory),
    }.items():
        assert shown in text
        text = text.replace(shown, here)
    text = re.sub(r"^ *ssl_certificate.*\n", "", text, flags=re.MULTILINE)
    places = "".join(
        f"{name}_temp_path {directory}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    file = directory / "nginx.conf"
    file.write_text(
        f"daemon off; master_process off; pid {directory}/pid; error_log {directory}/error.log;\n"
        f"events {{}}\nhttp {{\n{places}{text}}}\n"
    )
    command = ["nginx", "-c", str(file), "-p", str(directory)]
    checked = subprocess.run([*command, "-t"], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as nginx:
        try:
            transport = httpx.HTTPTransport(retries=8)
            with httpx.Client(transport=transport, trust_env=False, timeout=START_SECONDS) as client:
                assert client.get(f"http://127.0.0.1:{port}/v0/ready").is_success
            yield f"127.0.0.1:{port}"
        finally:
            nginx.terminate()
            server.end()


def test_addresses_are_those_that_the_client_uses(proxied: str) -> None:
    created = httpx.put(
        f"http://{proxied}/v1/stream/seen",
        headers={"host": "events.example.org", "x-forwarded-host": "attacker.example"},
        trust_env=False,
    )
    assert created.headers["location"] == "http://events.example.org/v1/stream/seen"


def test_events_arrive_while_the_stream_is_open(proxied: str) -> None:
    url = f"http://{proxied}/v1/stream/live"
    httpx.put(url, headers={"content-type": "application/json"}, trust_env=False).raise_for_status()
    with httpx.stream("GET", f"{url}?offset=-1&live=sse", trust_env=False, timeout=START_SECONDS) as answer:
        lines = answer.iter_lines()
        assert any(line.startswith("event: control") for line in lines)
        httpx.post(url, json=[{"n": 1}], trust_env=False).raise_for_status()
        assert any('"n":1' in line for line in lines)


def test_a_web_socket_passes(proxied: str) -> None:
    with connect(f"ws://{proxied}/v0/ws", proxy=None) as socket:
        socket.send(json.dumps({"op": "publish", "topic": "sent", "records": [{"data": 1}], "request_id": 1}))
        assert json.loads(socket.recv(START_SECONDS))["op"] == "ack"


def test_the_access_log_has_no_tokens(proxied: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    httpx.get(f"http://{proxied}/v0/ready?token=secret", trust_env=False)
    log = (tmp_path_factory.getbasetemp() / "nginx0/strandline.log").read_text()
    assert "/v0/ready" in log
    assert "secret" not in log


# --- Kubernetes -----------------------------------------------------------------------------------------------------


def test_the_manifest_describes_one_server_with_a_volume(tmp_path: Path) -> None:
    manifest = block_of("kubernetes.md", "yaml")
    assert manifest == (ROOT / "deploy/kubernetes/strandline.yaml").read_text()
    service, workload = yaml.safe_load_all(manifest)
    assert (service["kind"], workload["kind"], workload["spec"]["replicas"]) == ("Service", "StatefulSet", 1)
    labels = workload["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == workload["spec"]["selector"]["matchLabels"] == labels
    pod = workload["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    volumes = {volume["name"] for volume in pod["volumes"]}
    volumes |= {claim["metadata"]["name"] for claim in workload["spec"]["volumeClaimTemplates"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes
    environment = {variable["name"]: variable.get("value", "secret") for variable in container["env"]}
    settings = load(environment={**environment, "STRANDLINE_PORT": "tcp://10.0.0.1:4000"})
    assert settings.server.port == container["ports"][0]["containerPort"] == service["spec"]["ports"][0]["port"]
    assert len(settings.server.api_keys) == 1
    assert pod["terminationGracePeriodSeconds"] >= settings.server.drain_seconds + 10
    server = ServerProcess(tmp_path / "data").start()
    try:
        for probe in ("readinessProbe", "livenessProbe"):
            assert httpx.get(server.url + container[probe]["httpGet"]["path"], trust_env=False).is_success
    finally:
        server.end()


# --- Prometheus -----------------------------------------------------------------------------------------------------


RULES = yaml.safe_load((ROOT / "deploy/prometheus/strandline.rules.yml").read_text())["groups"]
DASHBOARD = json.loads((ROOT / "deploy/grafana/dashboards/strandline.json").read_text())

#: Labels that Prometheus adds.
ADDED_LABELS = {"instance", "job"}
_SELECTOR = re.compile(r"\b((?:topics|strandline|process)_\w+|up)(?:\{([^}]*(?:\{\w+\}[^}]*)*)\})?")


def labels_of_metrics() -> dict[str, set[str]]:
    """The labels of every series that a server can have."""
    text = (render_text(FULL_SNAPSHOT) + process_text()).decode()
    found: dict[str, set[str]] = {"up": set()}
    for family in text_string_to_metric_families(text):
        found.setdefault(family.name, set())
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def check_expression(expression: str) -> int:
    """Every metric exists, and has the labels that it is selected and grouped by. Returns the number of metrics."""
    known = labels_of_metrics()
    used = _SELECTOR.findall(re.sub(r"\$\w+", "", expression))
    assert used, expression
    every: set[str] = set()
    for name, selectors in used:
        assert name in known, f"no metric {name}: {expression}"
        every |= known[name]
        selected = set(re.findall(r"(\w+)=~?\"", selectors))
        assert selected <= known[name] | ADDED_LABELS, f"{name} has no labels {selected - known[name]}: {expression}"
    grouped = {
        label.strip() for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression) for label in group.split(",")
    }
    assert grouped <= every | ADDED_LABELS, f"no labels {grouped - every}: {expression}"
    return len(used)


def test_alerts_use_metrics_that_the_server_has() -> None:
    (documented,) = yaml.safe_load(block_of("monitor-lag.md", "yaml", "# strandline.rules.yml\n"))["groups"]
    assert documented in RULES
    rules = [rule for group in RULES for rule in group["rules"]]
    assert sum(check_expression(rule["expr"]) for rule in rules) > 20
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        shown = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])) - ADDED_LABELS
        known = set().union(*(labels_of_metrics()[name] for name, _ in _SELECTOR.findall(rule["expr"])))
        assert shown <= known, rule


def test_the_dashboard_shows_metrics_that_the_server_has() -> None:
    panels = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
    for panel in panels:
        for target in panel["targets"]:
            check_expression(target["expr"])
    assert len(panels) > 25
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    # No two panels share a place.
    places = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in DASHBOARD["panels"]]
    assert len(set(places)) == len(places)


@pytest.mark.parametrize(
    "expression",
    ["rate(strandline_absent_total[5m])", "sum by (tenant) (strandline_logs)", 'strandline_requests_total{code="500"}'],
)
def test_the_check_of_expressions_finds_what_does_not_exist(expression: str) -> None:
    with pytest.raises(AssertionError):
        check_expression(expression)


def test_prometheus_scrapes_the_path_that_is_its_default() -> None:
    (job,) = yaml.safe_load(block_of("monitor-lag.md", "yaml", "# prometheus.yml\n"))["scrape_configs"]
    assert "metrics_path" not in job


# --- systemd --------------------------------------------------------------------------------------------------------


def test_the_service_gives_the_server_time_to_stop(tmp_path: Path) -> None:
    unit = RawConfigParser()
    text = block_of("run-a-server.md", "ini")
    assert text == (ROOT / "deploy/systemd/strandline.service").read_text()
    unit.read_string(text)
    config = tmp_path / "strandline.toml"
    config.write_text(block_of("run-a-server.md", "toml"))
    settings = load(config)
    service = unit["Service"]
    assert service.getint("TimeoutStopSec") >= settings.server.drain_seconds + 10
    assert settings.storage.data_dir == f"/var/lib/{service['StateDirectory']}"
    executable, *arguments = shlex.split(service["ExecStart"])
    assert Path(executable).name == "strandline"
    assert arguments == ["serve", "--config", "/etc/strandline/strandline.toml"]
