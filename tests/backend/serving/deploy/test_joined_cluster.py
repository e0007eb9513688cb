"""The application on a cluster that was joined: its proxies keep Encore's bounds where Encore starts Serve."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from backend.store.home import Home
from backend.voices.registry import Voices
from tests.backend.cluster.other_ray import WITHOUT_TOKEN, other_ray
from tests.backend.serving.api.served import CONSENT, ask
from tests.golden import GOLDEN_CHECKPOINT
from tests.ui.raw_http import connect, read_reply
from tests.ui.recordings import write_voice
from training.model.project import PROJECT_FOLDER

pytestmark = pytest.mark.ray

START_SECONDS = 400.0

DRIVER = """
import sys
from pathlib import Path
from backend.cluster.connect import SERVE, connect
from backend.serving.deploy.ray_application import start_application, stop_application
from backend.serving.settings import EngineSettings, ServeSettings

model, home, port = sys.argv[1:]
engine = EngineSettings(model=model, precision="fp32", device="cpu", cache_length=1024)
serving = ServeSettings(engine=engine, home=Path(home), port=int(port), num_cpus=0.5)
with connect(SERVE):
    start_application(serving)
    print("ready", flush=True)
    sys.stdin.readline()
    stop_application(serving, is_own_cluster=False)
    print("stopped", flush=True)
    sys.stdin.readline()
"""


def test_its_proxies_keep_the_bounds_and_say_what_is_missing(tmp_path: Path) -> None:
    (elsewhere := tmp_path / "elsewhere").mkdir()
    home = tmp_path / "home"
    recording = write_voice(tmp_path / "anna.wav", seconds=1.2)
    Voices(Home(home)).create_zero_shot("Anna", recording, consent=CONSENT, model="tiny")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (elsewhere / "driver.py").write_text(DRIVER)
    command = [sys.executable, "driver.py", str(GOLDEN_CHECKPOINT), str(home), str(port)]
    address = f"http://127.0.0.1:{port}"
    with other_ray(elsewhere) as cluster:
        environment = {**os.environ, **WITHOUT_TOKEN, "PYTHONPATH": str(PROJECT_FOLDER), "RAY_ADDRESS": cluster}
        with subprocess.Popen(
            command, cwd=elsewhere, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as driver:
            assert driver.stdin is not None
            assert driver.stdout is not None
            said = iter(driver.stdout.readline, "")
            assert any("ready" in line for line in said)
            body = {name: value for name, value in ask().items() if name != "model"}
            spoken = httpx.post(f"{address}/v1/audio/speech", json=body, timeout=START_SECONDS)
            assert spoken.status_code == 200, spoken.text
            with connect(address) as half:
                half.sendall(b"POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\nContent-Le")
                assert read_reply(half).status == 408
            driver.stdin.write("\n")
            driver.stdin.flush()
            assert any("stopped" in line for line in said)
            gone = httpx.post(f"{address}/v1/audio/speech", json=body, timeout=START_SECONDS)
            assert gone.status_code == 503, gone.text
            assert gone.json()["error"]["code"] == "unavailable"
            driver.stdin.close()
