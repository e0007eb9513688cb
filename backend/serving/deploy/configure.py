"""What the API is told, from settings and options, the same for `app.py serve` and for Ray Serve's own commands."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, SecretStr, ValidationError

from backend.errors import SettingsError
from backend.serving.settings import EngineSettings, ServeSettings
from backend.settings import MAX_CHARACTERS, Settings
from backend.store.copies import check_and_keep_copied
from backend.store.home import Home
from backend.tenants.limits import limits_of_settings
from backend.voices.registry import Voices
from backend.watermark.installation import mark_of
from training.model.precision import PrecisionChoice

DEFAULT_PORT = 8000


class ServeOptions(BaseModel):
    """What can be chosen for one API, beside the settings of the installation; `configure` checks the numbers.

    Attributes:
        model: mini, a checkpoint folder, or a hub id; ENCORE_MODEL when None.
        precision: ENCORE_PRECISION when None.
        device: ENCORE_DEVICE when None.
        voices: names of voices to make ready before the first request.
        num_slots: takes spoken at once by each process.
        min_replicas: fewest processes that speak.
        max_replicas: most of them.
        upscale_seconds: for so long more processes have to be wanted before one is started.
        downscale_seconds: the same before one is ended.
        drain_seconds: how long one that is to end may go on with what it speaks.
        num_cpus: of each.
        num_gpus: of each.
        max_characters: of one request's text.
        num_ingresses: processes that take requests, on any machines.
        home_resource: Ray's name for the machine with the home's database; the one that starts the API when None.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str | None = None
    precision: PrecisionChoice | None = None
    device: str | None = None
    voices: tuple[str, ...] = ()
    num_slots: int = 8
    min_replicas: int = 1
    max_replicas: int = 1
    upscale_seconds: float = 30.0
    downscale_seconds: float = 300.0
    drain_seconds: float = 600.0
    num_cpus: float = 1.0
    num_gpus: float = 0.0
    max_characters: int = MAX_CHARACTERS
    num_ingresses: int = 1
    home_resource: str | None = None


def configure(
    settings: Settings, options: ServeOptions, keys: tuple[SecretStr, ...], *, port: int = DEFAULT_PORT
) -> ServeSettings:
    """Everything that the API and its replicas need; opens the home.

    Raises:
        EncoreError: an option is not allowed, a voice does not exist, or the home cannot be opened.
    """
    check_and_keep_copied(settings.home_folder)
    home = Home(settings.home_folder)
    voices = Voices(home)
    preload = tuple(voices.get(name) for name in options.voices)
    try:
        return ServeSettings(
            engine=EngineSettings(
                model=options.model or settings.model,
                precision=options.precision or settings.precision,
                device=options.device or settings.device,
                num_slots=options.num_slots,
                mark=mark_of(home),
                preload=preload,
                storage=settings.storage,
                # The voices asked for shall not push each other out.
                max_engines=max(3, 1 + sum(voice.kind == "fine-tuned" for voice in preload)),
            ),
            home=home.folder,
            host=settings.host,
            port=port,
            max_characters=options.max_characters,
            max_takes=settings.max_takes,
            limits=limits_of_settings(settings),
            signing_cert=settings.signing_cert,
            signing_key=settings.signing_key,
            api_keys=keys,
            allowed_hosts=settings.allowed_hosts,
            trusted_proxies=settings.trusted_proxies,
            min_replicas=options.min_replicas,
            max_replicas=options.max_replicas,
            upscale_seconds=options.upscale_seconds,
            downscale_seconds=options.downscale_seconds,
            drain_seconds=options.drain_seconds,
            num_cpus=options.num_cpus,
            num_gpus=options.num_gpus,
            num_ingresses=options.num_ingresses,
            home_resource=options.home_resource,
        )
    except ValidationError as error:
        first = error.errors()[0]
        raise SettingsError(f"{first['loc'][-1] if first['loc'] else 'serve'}: {first['msg']}. Correct it.") from error
