"""The doctor's checks: each looks at one thing, takes less than a second unless a network is slow, never raises."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import psutil
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

from backend.cluster.connect import answers
from backend.doctor.check_storage import check_storage
from backend.doctor.finding import Finding, Level
from backend.provenance.signing import FileSigner
from backend.settings import Settings
from backend.store.copies import DatabaseCopies, made_at
from backend.transcription.catalogue import DEFAULT_WHISPER, PUBLISHED_WHISPERS, cache_folder
from backend.transcription.pocketsphinx_transcriber import is_installed
from backend.watermark.installation import SETTINGS_FILE, read_settings
from training.model.device import choose_device, device_name, select_device
from training.model.device_memory import total_bytes
from training.model.errors import EncoreError
from training.model.hub.hub import EMBEDDED_MODEL, resolve_model
from training.model.memory_need import find_room
from training.model.voice_model import choose_precision

_GB = 1e9
# A dataset of an hour, a run with three checkpoints of the embedded model, and room to breathe.
_FREE_DISK_GB = 2.0
# The studio with the embedded model, on top of what a desktop needs.
_MEMORY_GB = 4.0
_COMPILERS = ("c++", "g++", "clang++")


def examine(settings: Settings) -> list[Finding]:
    """Run every check, in the order in which a person meets what they look at."""
    checks: tuple[Callable[[Settings], Finding], ...] = (
        check_model,
        check_device,
        check_room,
        check_transcriber,
        check_memory,
        check_disk,
        check_storage,
        check_database,
        check_ray,
        check_deepspeed,
        check_address,
        check_signing,
        check_watermark,
    )
    return [check(settings) for check in checks]


def check_model(settings: Settings) -> Finding:
    """Whether the model is on this computer, and how large it is."""
    try:
        folder = _find_on_disk(settings.model)
    except (EncoreError, OSError) as error:
        return Finding(
            name="Model",
            level=Level.BROKEN,
            found=str(error),
            remedy="Choose another one at the top of the page, or with --model.",
        )
    if folder is None:
        return Finding(
            name="Model",
            level=Level.LIMITED,
            found=f"{settings.model} is not on this computer.",
            remedy="It is fetched when it is first used; the top of the page shows how far it has come.",
        )
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return Finding(name="Model", level=Level.GOOD, found=f"{settings.model} is here, {size / 1e6:,.0f} MB.")


def check_signing(settings: Settings) -> Finding:
    """Whether what leaves can be signed, and by whom; the certificate is made if there is none yet."""
    signer = FileSigner(settings.home_folder, settings.signing_cert, settings.signing_key)
    if signer.credentials is None:
        return Finding(
            name="Signatures",
            level=Level.BROKEN,
            found=signer.problem,
            remedy="Until then files leave with a comment tag alone; see docs/provenance.md.",
        )
    until = f"{signer.credentials.expires_at:%Y-%m-%d}"
    return Finding(
        name="Signatures",
        level=Level.GOOD,
        found=f"What leaves is signed by “{signer.credentials.signer}” until {until}.",
    )


def _find_on_disk(model: str) -> Path | None:
    """The model's folder, or None where it would have to be fetched first."""
    if model == EMBEDDED_MODEL or Path(model).expanduser().is_dir():
        return resolve_model(model)
    try:
        return Path(snapshot_download(model, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError):
        return None


def check_database(settings: Settings) -> Finding:
    """Whether the database is sound, and what there is to go back to."""
    copies = DatabaseCopies(settings.home_folder)
    try:
        copies.check()
        newest = next(iter(copies.list()), None)
    except (EncoreError, OSError) as error:
        return Finding(name="Database", level=Level.BROKEN, found=str(error))
    when = None if newest is None else made_at(newest)
    said = "no copy of it yet" if when is None else f"newest copy of {when.astimezone():%Y-%m-%d %H:%M}"
    return Finding(name="Database", level=Level.GOOD, found=f"Sound; {said}.")


def check_device(settings: Settings) -> Finding:
    """What the model would run on."""
    try:
        selection = select_device(settings.device)
        device = selection.device
        precision = choose_precision(settings.precision, device, 0)
    except EncoreError as error:
        return Finding(name="Device", level=Level.BROKEN, found=str(error))
    if selection.unused:
        # The GPU that is missed most comes first.
        better = selection.unused[0]
        found = f"{device_name(device)} ({device}), {precision}. {better.reason}"
        return Finding(name="Device", level=Level.LIMITED, found=found, remedy=better.remedy)
    if device.type != "cpu":
        memory = total_bytes(device) / _GB
        found = f"{device_name(device)} with {memory:.0f} GB ({device}), {precision}."
        return Finding(name="Device", level=Level.GOOD, found=found)
    return Finding(
        name="Device",
        level=Level.LIMITED,
        found=f"{os.cpu_count()} processor cores and no GPU, {precision}: fine for the embedded model.",
        remedy="For the public 1.7B checkpoint use a machine with a GPU, or --precision int8.",
    )


def check_room(settings: Settings) -> Finding:
    """Whether the model would fit where it is loaded, known from its configuration."""
    try:
        choose_device(settings.device)
    except EncoreError:
        found = "Known once there is a device to load it on."
        return Finding(name="Room for the model", level=Level.LIMITED, found=found, remedy="See Device.")
    try:
        folder = _find_on_disk(settings.model)
        if folder is None:
            found = f"What {settings.model} needs is known once it is on this computer."
            return Finding(name="Room for the model", level=Level.GOOD, found=found)
        room = find_room(folder, settings.precision, settings.device)
    except (EncoreError, OSError) as error:
        return Finding(
            name="Room for the model",
            level=Level.BROKEN,
            found=str(error),
            remedy="Choose another model, precision or device.",
        )
    found = (
        f"{settings.model} needs {room.needed / _GB:.1f} GB, and {room.free / _GB:.1f} GB are free on {room.device}."
    )
    return Finding(name="Room for the model", level=Level.GOOD, found=found)


def check_transcriber(settings: Settings) -> Finding:
    """Which Whisper models can transcribe recordings."""
    found = sorted(path.stem for path in cache_folder().glob("*.pt"))
    if found:
        return Finding(name="Whisper", level=Level.GOOD, found=f"On this computer: {', '.join(found)}.")
    megabytes = next(model.num_bytes for model in PUBLISHED_WHISPERS if model.name == DEFAULT_WHISPER) / 1e6
    remedy = (
        f"Download the model {DEFAULT_WHISPER} ({megabytes:.0f} MB) behind the model button, or bring a text file for "
        "each recording."
    )
    if is_installed():
        found_text = "None on this computer; pocketsphinx transcribes English."
        return Finding(name="Whisper", level=Level.LIMITED, found=found_text, remedy=remedy)
    return Finding(name="Whisper", level=Level.LIMITED, found="None on this computer.", remedy=remedy)


def check_memory(settings: Settings) -> Finding:
    """Whether there is room for a model next to what runs already."""
    memory = psutil.virtual_memory()
    found = f"{memory.available / _GB:.1f} of {memory.total / _GB:.1f} GB are free."
    if memory.available < _MEMORY_GB * _GB:
        return Finding(name="Memory", level=Level.LIMITED, found=found, remedy="Close other programs before training.")
    return Finding(name="Memory", level=Level.GOOD, found=found)


def check_disk(settings: Settings) -> Finding:
    """Whether what Encore keeps has room."""
    folder = settings.home_folder
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(existing).free / _GB
    found = f"{free:.1f} GB are free for {folder}."
    try:
        # Permissions alone do not say it: the disk may be mounted for reading.
        tempfile.TemporaryFile(dir=existing).close()
    except OSError as error:
        return Finding(
            name="Disk",
            level=Level.BROKEN,
            found=f"{existing} cannot be written: {error.strerror}.",
            remedy="Set ENCORE_HOME to a folder that you may write.",
        )
    if free < _FREE_DISK_GB:
        return Finding(
            name="Disk", level=Level.BROKEN, found=found, remedy="Free some, or set ENCORE_HOME to another disk."
        )
    return Finding(name="Disk", level=Level.GOOD, found=found)


def check_ray(settings: Settings) -> Finding:
    """Where fine-tunes and datasets would be computed."""
    version = metadata.version("ray")
    address = os.environ.get("RAY_ADDRESS")
    if address and not answers(address):
        return Finding(
            name="Ray",
            level=Level.BROKEN,
            found=f"Ray {version}; nothing answers at {address}, which RAY_ADDRESS names.",
            remedy="Start the cluster, correct RAY_ADDRESS, or unset it to use this machine alone.",
        )
    if address:
        return Finding(name="Ray", level=Level.GOOD, found=f"Ray {version}, on the cluster at {address}.")
    return Finding(name="Ray", level=Level.GOOD, found=f"Ray {version}, on this machine alone.")


def check_deepspeed(settings: Settings) -> Finding:
    """Whether the ZeRO strategies could be used, and with all that they offer."""
    found = f"DeepSpeed {metadata.version('deepspeed')}."
    if any(map(shutil.which, _COMPILERS)):
        return Finding(name="DeepSpeed", level=Level.GOOD, found=found)
    return Finding(
        name="DeepSpeed",
        level=Level.LIMITED,
        found=f"{found} There is no C++ compiler, so zero3 cannot offload to NVMe.",
        remedy="Install one (Debian: apt install g++ ninja-build libaio-dev), or offload to cpu.",
    )


def check_address(settings: Settings) -> Finding:
    """Who can reach the page."""
    if not settings.is_exposed:
        return Finding(name="Address", level=Level.GOOD, found=f"Only this machine ({settings.host}).")
    if settings.auth is None:
        return Finding(
            name="Address",
            level=Level.BROKEN,
            found=f"{settings.host} is open to other machines, and no password is asked for.",
            remedy="Set ENCORE_AUTH=user:password.",
        )
    return Finding(name="Address", level=Level.GOOD, found=f"{settings.host}, with a password.")


def check_watermark(settings: Settings) -> Finding:
    """Whether what is spoken here says that it was made."""
    try:
        reason = read_settings(settings.home_folder).watermark_off
    except EncoreError as error:
        return Finding(
            name="Watermark", level=Level.BROKEN, found=str(error), remedy="Nothing can be spoken until then."
        )
    if reason is None:
        return Finding(name="Watermark", level=Level.GOOD, found="Everything spoken here carries it.")
    return Finding(
        name="Watermark",
        level=Level.LIMITED,
        found=f"The operator has switched it off: {reason}",
        remedy=f"Remove watermark_off from {settings.home_folder / SETTINGS_FILE} and start Encore again.",
    )
