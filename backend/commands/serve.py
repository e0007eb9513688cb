"""`app.py serve`: the speech API, on Ray Serve or in this process alone."""

from __future__ import annotations

import argparse
import signal
import threading
from types import FrameType

from pydantic import ValidationError

from backend.cluster.connect import SERVE, connect
from backend.commands.options import add_model_options
from backend.errors import SettingsError
from backend.serving.deploy.local_server import serve_locally
from backend.serving.settings import MAX_CHARACTERS, EngineSettings, ServeSettings
from backend.settings import Settings
from backend.store.copies import check_and_keep_copied
from backend.store.home import Home
from backend.voices.registry import Voices
from backend.watermark.installation import mark_of
from training.machine import Machine

DEFAULT_PORT = 8000


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser], settings: Settings) -> None:
    """Describe the command's options."""
    parser = commands.add_parser("serve", help="serve the speech API", description=__doc__)
    add_model_options(parser, settings)
    parser.add_argument(
        "--voice", action="append", default=[], metavar="NAME", help="make this voice ready before the first request"
    )
    parser.add_argument("--host", default=settings.host, help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="port (default: %(default)s)")
    parser.add_argument(
        "--num-replicas",
        type=_replicas,
        default=(1, 1),
        metavar="N or MIN-MAX",
        help="processes that speak; with MIN-MAX as many as there is work for (default: 1)",
    )
    parser.add_argument("--num-gpus", type=float, default=0.0, help="GPUs of each process (default: 0)")
    parser.add_argument("--num-slots", type=int, default=8, help="takes spoken at once by each process (default: 8)")
    parser.add_argument(
        "--max-characters",
        "--most-characters",
        dest="max_characters",
        type=int,
        default=MAX_CHARACTERS,
        metavar="N",
        help="refuse a request whose text is longer (default: %(default)s)",
    )
    parser.add_argument("--local", action="store_true", help="serve from this process alone, without Ray")
    parser.set_defaults(run=lambda arguments: run(arguments, settings))


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
    from backend.serving.deploy.proxy import set_environment  # noqa: PLC0415 - loads uvicorn
    from backend.serving.deploy.ray_application import start_application, stop_application  # noqa: PLC0415 - loads Ray

    machine = Machine.here()
    interrupted = threading.Event()

    def interrupt(_: int, __: FrameType | None) -> None:
        interrupted.set()

    set_environment(serving)
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


def _replicas(value: str) -> tuple[int, int]:
    least, dash, most = value.partition("-")
    most = most if dash else least
    if not (least.isdecimal() and most.isdecimal()) or not 1 <= int(least) <= int(most):
        raise argparse.ArgumentTypeError(f"{value!r} is no number of replicas; write 2, or 1-4")
    return int(least), int(most)
