"""What Ray Serve's own commands and KubeRay run: the same API, with keys, its home beside the database."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from backend.errors import SettingsError
from backend.serving.deploy.configure import ServeOptions, configure
from backend.serving.deploy.proxy import environment
from backend.settings import Settings
from backend.voices.errors import VoiceNotFound
from tests.golden import GOLDEN_CHECKPOINT
from training.model.project import PROJECT_FOLDER

HEAD = "node:__internal_head__"


def run_serve(home: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    given = {"ENCORE_HOME": str(home), "ENCORE_MODEL": str(GOLDEN_CHECKPOINT), **variables}
    return subprocess.run(
        [sys.executable, "-m", *words],
        cwd=PROJECT_FOLDER, env={**os.environ, **given}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_options_win_over_settings_and_numbers_are_checked(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, model=str(GOLDEN_CHECKPOINT), precision="fp32", device="cpu")
    chosen = configure(settings, ServeOptions(device="cuda", num_slots=3, home_resource=HEAD), ())
    assert (chosen.engine.device, chosen.engine.precision, chosen.engine.num_slots) == ("cuda", "fp32", 3)
    assert (chosen.engine.model, chosen.home_resource) == (str(GOLDEN_CHECKPOINT), HEAD)
    with pytest.raises(SettingsError, match="num_slots"):
        configure(settings, ServeOptions(num_slots=0), ())
    with pytest.raises(SettingsError, match="min_replicas"):
        configure(settings, ServeOptions(min_replicas=3), ())
    with pytest.raises(VoiceNotFound):
        configure(settings, ServeOptions(voices=("nobody",)), ())


@pytest.mark.ray
def test_serve_build_describes_the_api_and_serves_nobody_without_keys(tmp_path: Path) -> None:
    build = ("ray.serve.scripts", "build", "--app-dir", ".", "backend.serving.deploy.import_path:application")
    refused = run_serve(tmp_path / "home", *build, ENCORE_API_KEYS="")
    assert refused.returncode != 0
    assert "Set ENCORE_API_KEYS" in refused.stderr
    written = tmp_path / "api.yaml"
    done = run_serve(tmp_path / "home", *build, "--output-path", str(written), ENCORE_API_KEYS="key")
    assert done.returncode == 0, done.stderr
    assert "key" not in written.read_text().replace("api_keys", "").split()
    (application,) = yaml.safe_load(written.read_text())["applications"]
    options = {one["name"]: one.get("ray_actor_options", {}) for one in application["deployments"]}
    assert options.keys() == {"SpeechEngine", "Home", "Api"}
    assert {name: one.get("resources") for name, one in options.items() if one.get("resources")} == {
        "Home": {HEAD: 0.001}
    }


@pytest.mark.ray
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning")
def test_the_arguments_of_a_configuration_arrive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As the controller of RayService calls it.
    from ray.serve._private.api import call_user_app_builder_with_args_if_necessary  # noqa: PLC0415 - takes seconds

    from backend.serving.deploy.import_path import speech  # noqa: PLC0415 - as above

    for name, value in (("HOME", str(tmp_path)), ("MODEL", str(GOLDEN_CHECKPOINT)), ("API_KEYS", "key")):
        monkeypatch.setenv(f"ENCORE_{name}", value)
    # The command line gives words for numbers.
    arguments = {"device": "cpu", "num_slots": "3", "num_gpus": 1}
    application = call_user_app_builder_with_args_if_necessary(speech, arguments)
    settings = application._bound_deployment.init_args[0]
    assert (settings.engine.device, settings.engine.num_slots, settings.num_gpus) == ("cpu", 3, 1)
    assert settings.keys == ("key",)
    with pytest.raises(SettingsError, match="num_slot"):
        call_user_app_builder_with_args_if_necessary(speech, {"num_slot": 3})


@pytest.mark.ray
def test_the_module_prints_what_proxies_are_told(tmp_path: Path) -> None:
    printed = run_serve(tmp_path, "backend.serving.deploy.import_path", ENCORE_TRUSTED_PROXIES="10.0.0.1")
    assert printed.returncode == 0, printed.stderr
    assert dict(line.split("=", 1) for line in printed.stdout.splitlines()) == environment(("10.0.0.1",))
