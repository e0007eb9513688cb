"""Tensors in safetensors files, and checks that they are the ones a network needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, cast

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from training.model.checkpoint.names import Component
from training.model.errors import CheckpointError

_FLOAT_CODES = frozenset({"F64", "F32", "F16", "BF16"})
_OTHER_CODES = {
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
_MAX_LISTED_NAMES = 5


class TensorHeader(Protocol):
    """A tensor's header; safetensors itself has no type annotations."""

    def get_shape(self) -> list[int]:
        """Sizes of the axes."""

    def get_dtype(self) -> str:
        """Type code, such as F32."""


class OpenFile(Protocol):
    """An open safetensors file."""

    def keys(self) -> list[str]:
        """Names of the tensors in it."""

    def get_slice(self, name: str) -> TensorHeader:
        """A tensor's header, without its values."""

    def get_tensor(self, name: str) -> Tensor:
        """A tensor's values, as they are in the file."""

    def metadata(self) -> dict[str, str] | None:
        """What else its header says; None where it says nothing."""


@contextmanager
def open_safetensors(path: Path) -> Iterator[OpenFile]:
    """Open a file for reading tensor by tensor. Raises CheckpointError if it is damaged, also within the block."""
    try:
        # Not memory-mapped: with a mapping, a file that shrinks while it is read kills the process with SIGBUS, and
        # weights that need no conversion would stay backed by the file for as long as the network lives.
        with safe_open(path, framework="pt", device="cpu", backend="pread") as file:
            yield cast(OpenFile, file)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is damaged or not a safetensors file: {error}. Get the model again.") from error


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in an open file, under the file's name for it."""

    path: Path
    name: str
    file: OpenFile

    def read(self, dtype: torch.dtype) -> Tensor:
        """Read the values into memory of their own, converted to `dtype`.

        Raises:
            CheckpointError: some are NaN or infinite, in the file or as `dtype`.
        """
        values = self.file.get_tensor(self.name).to(dtype)
        if values.is_floating_point() and values.numel():
            # The extremes reveal NaN and infinity at a small part of the cost of reading, so every tensor is checked.
            extremes = torch.stack(torch.aminmax(values))
            if not bool(extremes.isfinite().all()):
                raise CheckpointError(
                    f"{self.path}: {self.name} holds NaN or infinite values as {dtype}. The training run that wrote it "
                    "went wrong, or the file is damaged: use an earlier checkpoint, or get the model again."
                )
        return values


def locate_tensors(
    files: Sequence[tuple[Path, OpenFile]], component: Component, neighbours: Sequence[Component]
) -> tuple[dict[str, StoredTensor], list[str]]:
    """Find a component's tensors, by their names in the network, and list those that belong to no component.

    Raises:
        CheckpointError: two files hold the same tensor.
    """
    stored: dict[str, StoredTensor] = {}
    strays: list[str] = []
    for path, file in files:
        for name_in_file in file.keys():  # noqa: SIM118 - an open file is not a mapping
            name = component.name_in_network(name_in_file)
            if name is None:
                known = name_in_file in component.ignored or any(
                    other.name_in_network(name_in_file) is not None for other in neighbours
                )
                if not known:
                    strays.append(name_in_file)
            elif name in stored:
                raise CheckpointError(f"{path} and {stored[name].path} both hold {name_in_file}. Get the model again.")
            else:
                stored[name] = StoredTensor(path, name_in_file, file)
    return stored, strays


@dataclass
class Mismatch:
    """Tensors of a checkpoint that do not match a network."""

    missing: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    misshapen: list[str] = field(default_factory=list)

    def raise_if_any(self, path: Path) -> None:
        """Raise one CheckpointError that counts each kind and names the first few."""
        kinds = (("missing", self.missing), ("unknown", self.unknown), ("of another shape or type", self.misshapen))
        found = [f"{len(names)} {kind} ({_shorten(names)})" for kind, names in kinds if names]
        if found:
            raise CheckpointError(
                f"{path} does not fit the network that config.json describes. Tensors: {'; '.join(found)}. "
                "The file is of another model or version, or incomplete: get the model again."
            )


def compare_tensors(stored: Mapping[str, StoredTensor], targets: Mapping[str, Tensor], prefix: str) -> Mismatch:
    """Compare names, shapes and types with those of the network, from the files' headers alone."""
    mismatch = Mismatch(
        missing=[prefix + name for name in targets if name not in stored],
        unknown=[tensor.name for name, tensor in stored.items() if name not in targets],
    )
    for name in targets.keys() & stored.keys():
        tensor, target = stored[name], targets[name]
        header = tensor.file.get_slice(tensor.name)
        code, shape = header.get_dtype(), header.get_shape()
        if shape != list(target.shape) or not _fits(code, target):
            wanted = "float" if target.is_floating_point() else _OTHER_CODES.get(target.dtype, target.dtype)
            mismatch.misshapen.append(f"{tensor.name} is {code} {shape}, not {wanted} {list(target.shape)}")
    mismatch.misshapen.sort()
    return mismatch


def _fits(code: str, target: Tensor) -> bool:
    """Floating-point types convert to each other; integers must have the exact type."""
    return code in _FLOAT_CODES if target.is_floating_point() else code == _OTHER_CODES.get(target.dtype)


def _shorten(names: Sequence[str]) -> str:
    listed = ", ".join(names[:_MAX_LISTED_NAMES])
    hidden = len(names) - _MAX_LISTED_NAMES
    return f"{listed} and {hidden} more" if hidden > 0 else listed
