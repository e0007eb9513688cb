"""What passes between the studio and the process that has joined the cluster for it: pickles, with their length."""

from __future__ import annotations

import pickle
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from backend.errors import EncoreError
from backend.provenance.statement import VERSION
from backend.serving.loaded_model import ModelFacts
from backend.serving.remote.errors import ClusterSpeechError
from backend.serving.requests import SynthesisRequest
from backend.serving.settings import ServeSettings

LENGTH_BYTES = 4

ASKED, HANDED_OVER = b"+", b"-"
"""What the studio sends after its `Opening`: with a connection for each request; and before it leaves, where another
process goes on with the application, or replaces it."""


@dataclass(frozen=True, kw_only=True)
class Opening:
    """The first message of a studio: which application it wants, and where."""

    settings: ServeSettings
    address: str


@dataclass(frozen=True, kw_only=True)
class Opened:
    """The answer to it."""

    facts: ModelFacts | None = None
    error: EncoreError | None = None


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The only message of the studio on a connection of its own, which it closes when it wants no more.

    Attributes:
        order: what to speak; where it `is_prepared` only, the voice to analyse.
        recording: what is cloned, where it is not stored with a voice.
        is_prepared: nothing is to be heard yet.
    """

    order: SynthesisRequest
    recording: bytes | None = None
    is_prepared: bool = False


def facts_in(about: Mapping[str, str], address: str) -> ModelFacts:
    """What an application at `address` has loaded, from what it says of itself. Raises ClusterSpeechError."""
    if about["version"] != VERSION:
        raise ClusterSpeechError.of_another_version(address, about["version"], VERSION)
    return ModelFacts.model_validate_json(about["facts"]).model_copy(update={"cluster": address})


def packed(message: object) -> bytes:
    """One message. Both ends are processes of one user on one machine, and of one program."""
    content = pickle.dumps(message)
    return len(content).to_bytes(LENGTH_BYTES, "big") + content


def receive(connection: socket.socket) -> object:
    """The next message. Raises EOFError where the other end has gone, and what `socket.recv` raises."""
    length = int.from_bytes(_read(connection, LENGTH_BYTES), "big")
    return unpacked(_read(connection, length))


def unpacked(content: bytes) -> object:
    """The message in these bytes."""
    message: object = pickle.loads(content)
    return message


def _read(connection: socket.socket, length: int) -> bytes:
    content = bytearray()
    while len(content) < length:
        piece = connection.recv(length - len(content))
        if not piece:
            raise EOFError
        content += piece
    return bytes(content)
