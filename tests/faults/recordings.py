"""Hostile recordings: what is no sound, lies about itself or leads elsewhere is refused."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from backend.audio.decoding import decode_recording
from backend.audio.limits import REFERENCE_DECODING
from tests.backend.audio.sounds import FORMATS, encode, sing, write_silent_flac
from tests.faults.attack import Attack, Outcome, Result, attempt, left_behind
from tests.faults.damage import EXTREMES, damaged
from tests.faults.world import World

PER_STEP = 6
SECONDS = 1.2
SUFFIXES = ("wav", "flac", "mp3", "ogg", "m4a", "webm")
MAX_OVERSHOOT = 1.02


def step(rng: random.Random, world: World) -> Iterator[Outcome]:
    """Some files of random kinds, each decoded as a reference would be."""
    for _ in range(PER_STEP):
        with world.scratch() as folder:
            make = rng.choice(MAKERS)
            what, path = make(folder, rng, world)
            outcome = attempt(what, lambda path=path: _decode(path), world)
            if make is _elsewhere and outcome.result is Result.RECOVERED:
                outcome = Outcome(result=Result.WRONG, what=f"{what}: something was decoded")
            yield outcome
        yield from left_behind(what, world.left_in_temporary())


def _decode(path: Path) -> str:
    samples = decode_recording(path, sample_rate=24_000).samples
    if not np.isfinite(samples).all():
        return "samples that are no numbers"
    too_long = len(samples) > MAX_OVERSHOOT * REFERENCE_DECODING.max_seconds * 24_000
    return f"{len(samples)} samples" if too_long else ""


def _sound(rng: random.Random, world: World) -> tuple[str, bytes]:
    """A good file of one of the formats."""
    wanted = [form for form in FORMATS if form.suffix in SUFFIXES]
    number = rng.randrange(len(wanted))
    form = wanted[number]

    def make(folder: Path) -> bytes:
        return encode(folder / f"sound.{form.suffix}", sing(SECONDS, form.rate), form).read_bytes()

    return form.codec, bytes(world.once(f"sound-{number}", make))


def _mutated(folder: Path, rng: random.Random, world: World) -> tuple[str, Path]:
    name, content = _sound(rng, world)
    done = []
    for _ in range(rng.choice((1, 1, 2, 4))):
        how, content = damaged(content or b"\0", rng)
        done.append(how)
    (path := folder / "a.wav").write_bytes(content)
    return f"{name}, {', '.join(done)}", path


def _spliced(folder: Path, rng: random.Random, world: World) -> tuple[str, Path]:
    (one, first), (other, second) = _sound(rng, world), _sound(rng, world)
    (path := folder / "a.flac").write_bytes(first[: rng.randrange(len(first))] + second[rng.randrange(len(second)) :])
    return f"the front of {one}, the rest of {other}", path


def _lying_wav(folder: Path, rng: random.Random, world: World) -> tuple[str, Path]:
    """Every number of the header from the extremes, before data that may not be there."""
    kind, channels, bits = (
        rng.choice((1, 3, 6, 7, 0xFFFE)),
        rng.choice((0, 1, 2, 9, 0xFFFF)),
        rng.choice((0, 8, 16, 64)),
    )
    rate, align, size = rng.choice(EXTREMES), rng.choice((0, 1, 2, 0xFFFF)), rng.choice(EXTREMES)
    head = b"RIFF" + struct.pack("<I", rng.choice(EXTREMES)) + b"WAVEfmt "
    head += struct.pack("<IHHIIHH", rng.choice((16, 0, 18, 0xFFFFFFFF)), kind, channels, rate, rate, align, bits)
    (path := folder / "a.wav").write_bytes(
        head + b"data" + struct.pack("<I", size) + rng.randbytes(rng.choice((0, 9000)))
    )
    return f"a wav of kind {kind}, {channels} channels, {rate} Hz, {bits} bits, {size} bytes", path


def _random(folder: Path, rng: random.Random, world: World) -> tuple[str, Path]:
    head = rng.choice(
        (b"", b"RIFF", b"fLaC", b"ID3\x04", b"OggS", b"\xff\xfb\x90", b"\x1aE\xdf\xa3", b"\0\0\0 ftypM4A ")
    )
    size = rng.choice((0, 1, 3, 100, 5000, 200_000))
    (path := folder / "a.mp3").write_bytes(head[:size] + rng.randbytes(size))
    return f"{size} random bytes after {head!r}", path


def _elsewhere(folder: Path, rng: random.Random, world: World) -> tuple[str, Path]:
    """Lists and references that a decoder could follow to other files and addresses."""
    target = rng.choice((str(world.canary), "/etc/passwd", "http://127.0.0.1:9/a.wav", f"file://{world.recording}"))
    text = rng.choice((
        f"ffconcat version 1.0\nfile '{target}'\n",
        f"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\n{target}\n#EXT-X-ENDLIST\n",
        f"[playlist]\nFile1={target}\nNumberOfEntries=1\n",
        f"v=0\no=- 0 0 IN IP4 127.0.0.1\nc=IN IP4 127.0.0.1\nm=audio 9 RTP/AVP 0\na={target}\n",
        f'<?xml version="1.0"?><MPD><Period><BaseURL>{target}</BaseURL></Period></MPD>',
    ))  # fmt: skip
    (path := folder / "a.m3u8").write_text(text)
    return f"{text.split()[0]} with {target}", path


def _no_file(folder: Path, rng: random.Random, world: World) -> tuple[str, Path]:
    path = folder / rng.choice(("a.wav", "a" * 250, "\u202egnp.wav", "a\nb.wav"))
    kind = rng.choice(("directory", "pipe", "dangling link", "link to itself", "absent", "device"))
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "dangling link":
        path.symlink_to("nowhere")
    elif kind == "link to itself":
        path.symlink_to(path)
    elif kind == "device":
        path = Path(rng.choice(("/dev/zero", "/dev/null", "/dev/random", "/proc/self/mem")))
    return f"{kind} {path.name[:20]!r}", path


def _bomb(folder: Path, rng: random.Random, world: World) -> tuple[str, Path]:
    minutes = rng.choice((6, 30))
    source = world.once(f"bomb-{minutes}", lambda kept: write_silent_flac(kept / "bomb.flac", minutes=minutes))
    (path := folder / "a.flac").symlink_to(source)
    return f"{minutes} minutes of silence", path


MAKERS = (_mutated,) * 8 + (_spliced, _lying_wav, _lying_wav, _random, _random, _elsewhere, _elsewhere, _no_file, _bomb)

ATTACK = Attack(name="recordings", weight=2.0, attack=step)
