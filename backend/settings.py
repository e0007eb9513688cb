"""What a person can set: defaults, and the environment variables that change them."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError, field_validator

from backend.errors import SettingsError
from backend.web.hosts import AllowedHosts
from training.former_names import with_current_names
from training.model.device_names import DEVICE_HELP, DEVICE_PATTERN
from training.model.precision import PrecisionChoice
from training.storage.location import StorageLocation

PREFIX = "ENCORE_"
# As version 0.1 spelt them.
_FORMER_NAMES = {"most_takes": "max_takes"}
DEFAULT_HOME = Path("~/.encore")
MAX_CHARACTERS = 4096
"""Of the text of one request to the API, unless it is configured otherwise: OpenAI's own limit, about five minutes."""


def _split(given: object) -> object:
    return tuple(filter(None, map(str.strip, given.split(",")))) if isinstance(given, str) else given


Names = Annotated[tuple[str, ...], BeforeValidator(_split)]
"""Several words; in an environment variable with commas between them."""


class Settings(BaseModel):
    """Read once at the start; the command line overrides single fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str = Field(default="mini", description="mini, a checkpoint folder, or a hub id")
    precision: PrecisionChoice = "auto"
    device: str = "auto"
    speech: Literal["auto", "cluster", "local"] = Field(
        default="auto", description="where the studio speaks: on the cluster that RAY_ADDRESS names, or on this machine"
    )
    host: str = "127.0.0.1"
    port: int = Field(default=7860, ge=1, le=65535)
    auth: SecretStr | None = Field(default=None, description="user:password that the page asks for")
    share: bool = Field(default=False, description="also make a link to the page that works from anywhere")
    api_keys: SecretStr | None = Field(
        default=None, description="keys that the speech API accepts, separated by commas; without any only this machine"
    )
    allowed_hosts: Names = Field(
        default=(), description="further names under which the studio and the API are reached, separated by commas"
    )
    trusted_proxies: Names = Field(
        default=(), description="addresses of proxies whose X-Forwarded-For and X-Forwarded-Proto are believed"
    )
    max_upload_gb: float = Field(default=8.0, gt=0, description="of uploads that the studio holds at the same time")
    home: Path | None = Field(default=None, description="folder for what Encore stores; otherwise a temporary one")
    storage: str | None = Field(
        default=None, description="object storage that machines share: s3://bucket/prefix, gs://... or file:///folder"
    )
    max_takes: int = Field(default=500, ge=0, description="takes to keep; with 0 the API keeps none of what it speaks")
    requests_per_minute: int | None = Field(
        default=None, ge=1, description="requests to the API of each tenant; without it any number"
    )
    characters_per_day: int | None = Field(
        default=None, ge=1, description="characters that each tenant may have spoken by the API; without it any number"
    )
    max_voices: int | None = Field(
        default=None, ge=0, description="voices that each tenant may have in the API; without it any number"
    )
    signing_cert: Path | None = Field(
        default=None, description="certificates (PEM) to sign sound with, the signer's first; otherwise one made here"
    )
    signing_key: Path | None = Field(default=None, description="its private key (PEM, unencrypted)")
    log_level: Literal["debug", "info", "warning", "error"] = "warning"

    @field_validator("device")
    @classmethod
    def _is_device(cls, device: str) -> str:
        if re.fullmatch(DEVICE_PATTERN, device) is None:
            raise ValueError(f"it is none of {DEVICE_HELP}")
        return device

    @field_validator("storage")
    @classmethod
    def _is_location(cls, url: str | None) -> str | None:
        return str(StorageLocation.parse(url)) if url else None

    @field_validator("allowed_hosts")
    @classmethod
    def _are_names(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        try:
            AllowedHosts("localhost", names)
        except ValueError as error:
            raise ValueError(f"{error} is no name of a host, such as studio.example.org") from None
        return names

    @field_validator("trusted_proxies")
    @classmethod
    def _are_addresses(cls, addresses: tuple[str, ...]) -> tuple[str, ...]:
        for address in addresses:
            ipaddress.ip_network(address, strict=False)
        return addresses

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """Read `ENCORE_MODEL`, `ENCORE_PORT` and so on; names that are no setting are left alone.

        Raises:
            SettingsError: a value that is not allowed.
        """
        environment = os.environ if environment is None else environment
        names = [*cls.model_fields, *_FORMER_NAMES]
        found = {name: environment[PREFIX + name.upper()] for name in names if PREFIX + name.upper() in environment}
        given = with_current_names(found, _FORMER_NAMES)
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            first = error.errors()[0]
            name = PREFIX + str(first["loc"][0]).upper()
            raise SettingsError(f"{name} is {first['input']!r}: {first['msg']}. Correct it or unset it.") from error

    @property
    def home_folder(self) -> Path:
        """Where datasets, runs and voices live, so that they outlast the program: `home`, or `~/.encore`."""
        return (self.home or DEFAULT_HOME).expanduser().absolute()

    def keep_compiled_code(self, *, makes_home: bool) -> None:
        """Have torch keep what it compiles in the home instead of leaving it in the folder for temporary files.

        A command that may yet be refused makes no home for it.
        """
        if makes_home or self.home_folder.is_dir():
            os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(self.home_folder / "cache" / "torchinductor"))

    @property
    def is_exposed(self) -> bool:
        """Whether `host` lets other machines in."""
        if self.host == "localhost":
            return False
        try:
            return not ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return True

    def served_names(self) -> AllowedHosts:
        """Names under which the studio and the API are reached."""
        return AllowedHosts(self.host, self.allowed_hosts)

    def accepted_keys(self, *, has_others: bool = False) -> tuple[SecretStr, ...]:
        """The operator's keys of the speech API; none were set where only this machine can reach it or it `has_others`.

        Raises:
            SettingsError: there are none where other machines can reach the API.
        """
        given = self.api_keys.get_secret_value().split(",") if self.api_keys is not None else []
        keys = tuple(SecretStr(key.strip()) for key in given if key.strip())
        if not keys and not has_others and self.is_exposed:
            raise SettingsError(
                f"On {self.host} other machines could speak in every voice of Encore. Set {PREFIX}API_KEYS=key or more "
                "keys with commas between them, make one with `app.py keys add`, or listen on 127.0.0.1."
            )
        return keys

    def credentials(self) -> tuple[str, str] | None:
        """User and password that the page asks for; None where only this machine can reach it and none were set.

        Raises:
            SettingsError: `auth` has another form, or is missing where other machines can reach the page.
        """
        if self.auth is None:
            if self.share:
                raise SettingsError(
                    "With a share link everybody on the internet could use Encore and hear every voice in it. "
                    f"Set {PREFIX}AUTH=user:password (or give --auth), or leave out --share."
                )
            if self.is_exposed:
                raise SettingsError(
                    f"On {self.host} other machines could use Encore and hear every voice in it. "
                    f"Set {PREFIX}AUTH=user:password (or give --auth), or listen on 127.0.0.1."
                )
            return None
        user, _, password = self.auth.get_secret_value().partition(":")
        if not user or not password:
            raise SettingsError(f"{PREFIX}AUTH is not of the form user:password. Correct it or unset it.")
        return user, password
