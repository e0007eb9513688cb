"""The saved state of a training run, from which a killed run continues as if it had never stopped.

    run/state/job.json           the recipe; a run is only continued with the same one
    run/state/model.safetensors  weights and buffers
    run/state/optimizer.pt       the optimizers' state dicts, read with weights_only

Random numbers need no state: every draw of a step is derived from the seed and the step's number.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from pydantic import BaseModel, ValidationError
from safetensors.torch import load_file, save_file
from torch import nn
from torch.optim import Optimizer

from training.model.checkpoint.atomic_folder import create_folder
from training.model.checkpoint.reading import find_weights
from training.pretrain.errors import PretrainError

_FOLDER = "state"
_JOB, _MODEL, _OPTIMIZER = "job.json", "model.safetensors", "optimizer.pt"

# Weights and optimizers as states of version 0.1 name them.
_FORMER_WEIGHTS, _WEIGHTS = "adversary.opponents.", "discriminators."
_FORMER_OPTIMIZERS = {"adversary/adamw": "discriminators/adamw"}


def save_state(
    run: Path,
    job: BaseModel,
    step: int,
    networks: Mapping[str, nn.Module],
    optimizers: Mapping[str, Optimizer],
    *,
    corpus_size: int,
    seconds: float = 0.0,
) -> None:
    """Replace the run's state atomically: a kill at any time leaves the old state or the new one.

    `step` is the number of steps done, `corpus_size` the number of utterances they were drawn from, `seconds` the time
    they took.
    """
    tensors = {
        f"{name}.{key}": value.contiguous()
        for name, network in networks.items()
        for key, value in network.state_dict().items()
    }
    about = {"step": step, "corpus_size": corpus_size, "seconds": seconds, "job": job.model_dump(mode="json")}
    with create_folder(run / _FOLDER, replace=True) as new:
        (new / _JOB).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
        save_file(tensors, new / _MODEL)
        torch.save({name: optimizer.state_dict() for name, optimizer in optimizers.items()}, new / _OPTIMIZER)


def has_state(run: Path) -> bool:
    """Whether there is a run to continue."""
    return (run / _FOLDER / _JOB).is_file()


def read_step(run: Path) -> int | None:
    """Number of steps that a run has done; None without a run."""
    path = run / _FOLDER / _JOB
    return int(json.loads(path.read_text(encoding="utf-8"))["step"]) if path.is_file() else None


def read_seconds(run: Path) -> float:
    """How long a run has trained; 0 for states of earlier versions."""
    return float(json.loads((run / _FOLDER / _JOB).read_text(encoding="utf-8")).get("seconds", 0.0))


def load_state(
    run: Path,
    job: BaseModel,
    networks: Mapping[str, nn.Module],
    optimizers: Mapping[str, Optimizer],
) -> tuple[int, int]:
    """Restore networks and optimizers; returns the number of steps done, and the corpus size at that time.

    Raises:
        PretrainError: the run was started with another recipe, or its state is from another program version.
    """
    folder = run / _FOLDER
    about = json.loads((folder / _JOB).read_text(encoding="utf-8"))
    _refuse_other_job(run, _completed(about["job"], job), job.model_dump(mode="json"))
    _load_networks(folder / _MODEL, networks)
    saved = torch.load(folder / _OPTIMIZER, weights_only=True, map_location="cpu")
    states = {_FORMER_OPTIMIZERS.get(name, name): state for name, state in saved.items()}
    for name, optimizer in optimizers.items():
        optimizer.load_state_dict(states[name])
    return int(about["step"]), int(about["corpus_size"])


def read_networks(run: Path, job: BaseModel, networks: Mapping[str, nn.Module]) -> int:
    """Load only the weights, for export or evaluation; returns the number of steps done."""
    step, _ = load_state(run, job, networks, {})
    return step


def read_weights(run: Path, networks: Mapping[str, nn.Module]) -> None:
    """Load the weights of a run with any recipe, to begin another run with them.

    Raises:
        PretrainError: there is no run, or its networks have other sizes.
    """
    path = run / _FOLDER / _MODEL
    if not path.is_file():
        raise PretrainError(f"{run} holds no run to start from.")
    _load_networks(path, networks)


def read_checkpoint(folder: Path, parts: Mapping[str, nn.Module]) -> None:
    """Copy the weights of a checkpoint folder into networks of the same size; `parts` names them by their prefix.

    Raises:
        CheckpointError: the folder has no weights.
        PretrainError: the networks have other sizes.
    """
    tensors = {name: value for file in find_weights(folder) for name, value in load_file(file).items()}
    for prefix, part in parts.items():
        own = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
        try:
            # Copied in place: the optimizers hold these very parameters.
            part.load_state_dict(own)
        except RuntimeError as error:
            raise PretrainError(f"{folder} is a checkpoint of other sizes: {error}") from error


def read_job(run: Path) -> dict[str, object]:
    """The saved recipe of the run in this folder."""
    about = json.loads((run / _FOLDER / _JOB).read_text(encoding="utf-8"))
    job: dict[str, object] = about["job"]
    return job


def step_random(seed: int, step: int) -> torch.Generator:
    """The generator of a step's random numbers, on the CPU and hence the same for any device."""
    state = np.random.SeedSequence((seed, step)).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(state >> np.uint64(1)))


def _completed(saved: Mapping[str, object], job: BaseModel) -> Mapping[str, object]:
    """A saved recipe with current names, and with defaults for options that did not exist when it was saved."""
    try:
        return type(job).model_validate(saved).model_dump(mode="json")
    except ValidationError:
        return saved


def _refuse_other_job(run: Path, saved: Mapping[str, object], asked: Mapping[str, object]) -> None:
    changed = [
        f"{name} {saved.get(name)!r} instead of {asked.get(name)!r}"
        for name in sorted({*saved, *asked})
        if saved.get(name) != asked.get(name)
    ]
    if changed:
        raise PretrainError(
            f"{run} holds a run with another recipe ({'; '.join(changed)}). Choose another folder, or delete it."
        )


def _load_networks(path: Path, networks: Mapping[str, nn.Module]) -> None:
    tensors = {
        _WEIGHTS + name.removeprefix(_FORMER_WEIGHTS) if name.startswith(_FORMER_WEIGHTS) else name: value
        for name, value in load_file(path).items()
    }
    try:
        for name, network in networks.items():
            prefix = f"{name}."
            own = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
            network.load_state_dict(own)
    except RuntimeError as error:
        raise PretrainError(
            f"{path} is the state of another version of the network. Start a new run: {error}"
        ) from error
