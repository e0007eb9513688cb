"""`app.py serve`: the speech API, on Ray Serve or in this process alone."""

from __future__ import annotations

import argparse
import signal
import threading
from types import FrameType

from pydantic import ValidationError

from backend.cluster.connect import SERVE, connect
from backend.errors import SettingsError
from backend.serving.deploy.local_server import serve_locally
from backend.serving.settings import EngineSettings, ServeSettings
from backend.settings import Settings
from backend.store.copies import check_and_keep_copied
from backend.store.home import Home
from backend.voices.registry import Voices
from backend.watermark.installation import mark_of
from training.machine import Machine


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Serve until interrupted; EncoreError carries anything a person can put right."""
    settings = settings.model_copy(update={"host": arguments.host})
    keys = settings.accepted_keys()
    check_and_keep_copied(settings.home_folder)
    home = Home(settings.home_folder)
    voices = Voices(home)
    preload = tuple(voices.get(name) for name in arguments.voice)
    try:
        serving = ServeSettings(
            engine=EngineSettings(
                model=arguments.model,
                precision=arguments.precision,
                device=arguments.device,
                num_slots=arguments.num_slots,
                mark=mark_of(home),
                preload=preload,
                # The voices asked for shall not push each other out.
                max_engines=max(3, 1 + sum(voice.kind == "fine-tuned" for voice in preload)),
            ),
            home=home.folder,
            host=arguments.host,
            port=arguments.port,
            max_characters=arguments.max_characters,
            max_takes=settings.max_takes,
            signing_cert=settings.signing_cert,
            signing_key=settings.signing_key,
            api_keys=keys,
            allowed_hosts=settings.allowed_hosts,
            trusted_proxies=settings.trusted_proxies,
            min_replicas=arguments.num_replicas[0],
            max_replicas=arguments.num_replicas[1],
            num_gpus=arguments.num_gpus,
        )
    except ValidationError as error:
        first = error.errors()[0]
        raise SettingsError(f"{first['loc'][-1] if first['loc'] else 'serve'}: {first['msg']}. Correct it.") from error
    if arguments.local:
        serve_locally(serving)
    else:
        _serve_on_ray(serving)
    return 0


def _serve_on_ray(serving: ServeSettings) -> None:
    """Start the application on the cluster that RAY_ADDRESS names, or on one of this machine's own."""
    from backend.serving.deploy.ray_application import start_application, stop_application  # noqa: PLC0415 - loads Ray

    machine = Machine.here()
    interrupted = threading.Event()

    def interrupt(_: int, __: FrameType | None) -> None:
        interrupted.set()

    with connect(SERVE, machine, home=serving.home):
        # Before the application starts, which takes a while: an interruption then must not leave it behind.
        before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            start_application(serving)
            print(f"Speech API: http://{serving.host}:{serving.port}/v1 (Ctrl+C ends it)", flush=True)
            interrupted.wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            stop_application(serving, is_own_cluster=machine.address is None)
