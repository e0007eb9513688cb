"""The API for Ray Serve's own commands, and for KubeRay's RayService.

    serve run backend.serving.deploy.import_path:speech model=mini num_gpus=1
    serve build backend.serving.deploy.import_path:application --output-path api.yaml

Settings come from the environment, as for `app.py serve`. Ray Serve's proxies are told of Encore's bounds by variables,
which `python -m backend.serving.deploy.import_path` prints: they have to be set where Ray is started.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from ray import serve

from backend.errors import SettingsError
from backend.serving.deploy.configure import ServeOptions, configure
from backend.serving.deploy.proxy import environment
from backend.serving.deploy.ray_application import build_application
from backend.settings import PREFIX, Settings
from backend.tenants.keys import ApiKeys

HEAD = "node:__internal_head__"
"""Ray's own name for the machine of its head, which is where a cluster's home has its database."""


def speech(arguments: Mapping[str, Any]) -> serve.Application:  # Any: what a configuration holds, checked here
    """Describe the API; called by Ray Serve with the arguments of its command or configuration, see `ServeOptions`.

    Raises:
        EncoreError: the API cannot be served as the settings say.
    """
    try:
        options = ServeOptions.model_validate(arguments)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        raise SettingsError(f"{name}: {first['msg']}. Correct it among the arguments of the application.") from error
    settings = Settings.from_environment()
    has_others = ApiKeys.exist_in(settings.home_folder)
    keys = settings.accepted_keys(has_others=has_others)
    if not keys and not has_others:
        # Who reaches Serve is decided where it is started, which is not known here.
        raise SettingsError(
            "Ray Serve may be reached by other machines, which could speak in every voice of Encore. "
            f"Set {PREFIX}API_KEYS=key or more keys with commas between them, or make one with `app.py keys add`."
        )
    if options.home_resource is None:
        options = options.model_copy(update={"home_resource": HEAD})
    return build_application(configure(settings, options, keys))


def __getattr__(name: str) -> serve.Application:
    """`application`, for `serve build`, which takes no arguments; made when it is asked for and not at the import."""
    if name == "application":
        return speech({})
    raise AttributeError(name)


if __name__ == "__main__":
    for variable, value in environment(Settings.from_environment().trusted_proxies).items():
        print(f"{variable}={value}")
