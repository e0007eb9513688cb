"""`app.py serve`: the speech API, on Ray Serve or in this process alone."""

from __future__ import annotations

import argparse
import signal
import threading
from types import FrameType
from typing import TYPE_CHECKING

from backend.commands.checks import check_device, check_model
from backend.commands.loading import loading
from backend.serving.deploy.configure import ServeOptions, configure
from backend.settings import Settings
from backend.tenants.keys import ApiKeys

if TYPE_CHECKING:
    from backend.serving.settings import ServeSettings


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Serve until interrupted; EncoreError carries anything a person can put right."""
    settings = settings.model_copy(update={"host": arguments.host})
    keys = settings.accepted_keys(has_others=ApiKeys.exist_in(settings.home_folder))
    check_device(arguments.device)
    check_model(arguments.model)
    options = ServeOptions(
        model=arguments.model,
        precision=arguments.precision,
        device=arguments.device,
        voices=tuple(arguments.voice),
        num_slots=arguments.num_slots,
        min_replicas=arguments.num_replicas[0],
        max_replicas=arguments.num_replicas[1],
        num_ingresses=arguments.num_ingresses,
        num_gpus=arguments.num_gpus,
        max_characters=arguments.max_characters,
    )
    serving = configure(settings, options, keys, port=arguments.port)
    if arguments.local:
        with loading():
            from backend.serving.deploy.local_server import serve_locally  # noqa: PLC0415 - seconds, see `loading`

        serve_locally(serving)
    else:
        _serve_on_ray(serving)
    return 0


def _serve_on_ray(serving: ServeSettings) -> None:
    """Start the application on the cluster that RAY_ADDRESS names, or on one of this machine's own."""
    with loading():
        from backend.cluster.connect import SERVE, connect  # noqa: PLC0415 - loads Ray
        from backend.serving.deploy.ray_application import start_application, stop_application  # noqa: PLC0415
        from backend.serving.deploy.shared_model import share_model  # noqa: PLC0415
        from training.machine import Machine  # noqa: PLC0415

    machine = Machine.here()
    interrupted = threading.Event()

    def interrupt(_: int, __: FrameType | None) -> None:
        interrupted.set()

    with connect(SERVE, machine, home=serving.home):
        # Before the application starts, which takes a while: an interruption then must not leave it behind.
        before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            if machine.address is not None:
                serving = serving.model_copy(update={"engine": share_model(serving.engine)})
            start_application(serving)
            print(f"Speech API: http://{serving.host}:{serving.port}/v1 (Ctrl+C ends it)", flush=True)
            interrupted.wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            stop_application(serving, is_own_cluster=machine.address is None)
