"""Everything a fine-tune depends on, as one frozen object that is saved with its checkpoints."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    field_validator,
    model_validator,
)

from training.errors import JobInvalid
from training.former_names import with_current_names
from training.model.device_names import DeviceChoice
from training.model.lora_config import AdaptedLayers, LoraConfig
from training.model.seed import Seed
from training.voice_name import MAX_NAME_LENGTH, begins_name, is_part_of_name

Strategy = Literal["ddp", "fsdp2", "fsdp2-no-reshard", "fsdp2-hybrid", "zero1", "zero2", "zero3"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)
Offload = Literal["none", "cpu", "nvme"]
Batching = Literal["packed", "bucketed", "shuffled"]
Method = Literal["full", "lora"]
BATCHINGS: tuple[str, ...] = get_args(Batching)
METHODS: tuple[Method, ...] = get_args(Method)
MethodChoice = Literal["auto"] | Method
METHOD_CHOICES: tuple[MethodChoice, ...] = ("auto", *METHODS)
Preset = Literal["quick", "standard", "thorough"]
PRESETS: tuple[Preset, ...] = get_args(Preset)

JOB_FILE, CHECKPOINTS_FOLDER, ADAPTER_FOLDER = "job.json", "checkpoints", "adapter"
MAX_STEPS, MAX_EPOCHS = 1_000_000, 10_000
"""Larger values are typing errors, and planning such a run would exhaust the memory."""
MAX_LORA_RANK = 1024
"""The width of the smallest public talker: a larger rank trains more than the whole layer has."""

# As jobs of version 0.1 spell them.
_FORMER_NAMES = {
    "final_learning_rate_share": "min_lr_ratio",
    "warmup_share": "warmup_ratio",
    "micro_batch_rows": "micro_batch_tokens",
    "longest_clip_rows": "max_clip_tokens",
    "in_context_share": "in_context_ratio",
    "kept_change": "interpolation_alpha",
}
# What may differ between the two halves of an interrupted run without changing what it learns.
_FREE_ON_RESUME = frozenset(
    {"strategy", "num_workers", "device", "offload", "nvme_folder", "deepspeed", "activation_checkpointing", "output"}
    | {"dataset", "base_model", "checkpoint_every", "keep_checkpoints", "report_every", "export_at_end"}
    | {"interpolation_alpha"}
)

Share = Annotated[float, Field(ge=0, le=1)]


class JobSpeaker(BaseModel):
    """One of the speakers that a job teaches, with the data it is learnt from; see the fields of `FineTuneJob`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    voice: str
    dataset: Path
    dataset_digest: str = Field(min_length=1)

    @field_validator("voice")
    @classmethod
    def _check_voice(cls, voice: str) -> str:
        return _clean_voice(voice)

    @field_validator("dataset")
    @classmethod
    def _make_absolute(cls, path: Path) -> Path:
        return path.expanduser().absolute()

    @property
    def name(self) -> str:
        """In the exported checkpoint: the reference package looks speakers up in lower case."""
        return self.voice.lower()


class FineTuneJob(BaseModel):
    """One fine-tune: data, base model, recipe, machines, and where the results are written.

    A step trains on `micro_batches` micro-batches of at most `micro_batch_tokens` tokens each. Workers only divide them
    among themselves, so the updates do not depend on the number of workers.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    voice: str
    """Name of the new voice; a speaker of the exported checkpoint, there in lower case."""
    dataset: Path
    """Folder with `dataset.json` and `rows.parquet`."""
    dataset_digest: str = Field(min_length=1)
    """Of the data the run was planned with; other data is refused."""
    base_model: Path
    """Folder of a `base` checkpoint."""
    output: Path
    """The run's folder: checkpoints and exports. Every worker must see it."""
    more_speakers: tuple[JobSpeaker, ...] = ()
    """Further speakers, each with a dataset and a name of their own; they share the weights, and the speech of every
    epoch is divided among all of them, see `training/data/balance.py`."""

    method: Method = "full"
    """What is trained. full: all weights. lora: a low-rank adapter beside the weights of the base model."""
    lora_rank: Annotated[PositiveInt, Field(le=MAX_LORA_RANK)] = 16
    lora_alpha: PositiveFloat = 32.0
    """Over the rank, the factor of what the adapter adds."""
    lora_dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    lora_layers: tuple[AdaptedLayers, ...] = Field(default=("attention", "mlp"), min_length=1)
    """Which layers have an adapter: the talker's attention, its MLP, and both of the code predictor."""

    strategy: Strategy = "ddp"
    num_workers: PositiveInt = 1
    device: DeviceChoice = "auto"
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Of the arithmetic; weights and their updates are float32."""
    activation_checkpointing: bool = False
    """Keep few activations and recompute the others: a third slower, with a fraction of the memory."""
    offload: Offload = "none"
    """Where optimizer state (and with fsdp2 and zero3 the shards of the weights) is kept between uses."""
    nvme_folder: Path | None = None
    """Where it is kept with offload nvme; such a run must be resumed with the same number of workers."""
    deepspeed: dict[str, JsonValue] = Field(default_factory=dict)
    """Merged into the strategy's DeepSpeed configuration, section by section."""

    seed: Seed = 1
    num_epochs: Annotated[PositiveInt, Field(le=MAX_EPOCHS)] = 3
    num_steps: Annotated[PositiveInt, Field(le=MAX_STEPS)] | None = None
    """Exactly this many steps, over as many epochs as needed; None for whole epochs."""
    learning_rate: PositiveFloat = 1e-5
    min_lr_ratio: Share = 0.1
    warmup_ratio: Share = 0.1
    """Share of all steps."""
    weight_decay: NonNegativeFloat = 0.01
    adam_betas: tuple[Share, Share] = (0.9, 0.95)
    max_gradient_norm: PositiveFloat = 1.0

    micro_batches: PositiveInt = 4
    """Per step, over all workers together; a worker accumulates its share of them."""
    micro_batch_tokens: PositiveInt = 1024
    """Prompt tokens and frames in a micro-batch, padding included; bounds a worker's memory."""
    max_clip_tokens: PositiveInt = 1024
    """Clips that are longer, with their prompt, are left out and counted."""

    batching: Batching = "packed"
    """How clips share a micro-batch. packed: concatenated in a single batch row, without padding. bucketed: a row each,
    with clips of similar length. shuffled: a row each, with any clips; a baseline for the other two."""

    code_predictor_fraction: Annotated[float, Field(ge=1 / 16, le=1)] = 1.0
    """Share of the frames that the code predictor is trained on in each micro-batch."""
    code_predictor_weight: NonNegativeFloat = 0.3
    train_text_embedding: bool = False
    in_context_ratio: Share = 0.0
    """Share of examples laid out as the continuation of another clip; the rest follow the speaker embedding alone."""
    misheard_share: Share = 0.0
    """Share of the codes of the past that are exchanged, at most, so that the talker learns to go on from its mistakes
    (Bengio et al. 2015)."""
    speaker: Literal["reference", "mean"] = "reference"
    """The voice's frozen embedding: that of the reference clip, or the mean over the training clips."""

    checkpoint_every: PositiveInt | None = None
    """Steps between checkpoints; None for one per epoch. The last step always has one."""
    keep_checkpoints: PositiveInt = 2
    """Number of newest checkpoints to keep; the best one is kept as well."""
    report_every: PositiveInt = 1
    """Steps between reports."""
    interpolation_alpha: Share = 1.0
    """Weight of the fine-tuned weights in exports, interpolated with the base weights (Wortsman et al. 2022, arXiv
    2109.01903). 0.5 restores intelligibility that fine-tuning cost, and keeps most of the gain in similarity.
    """
    export_at_end: bool = True
    """Export the last weights as checkpoints in the public format, to `exports` in the run's folder."""

    @model_validator(mode="before")
    @classmethod
    def _accept_former_names(cls, raw: Any) -> Any:  # Any: whatever is to be validated
        return with_current_names(raw, _FORMER_NAMES)

    @field_validator("voice")
    @classmethod
    def _check_voice(cls, voice: str) -> str:
        return _clean_voice(voice)

    @field_validator("dataset", "base_model", "output", "nvme_folder")
    @classmethod
    def _make_absolute(cls, path: Path | None) -> Path | None:
        # Ray starts workers in other folders, where a relative path would mean something else.
        return path.expanduser().absolute() if path is not None else None

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.method == "lora" and self.train_text_embedding:
            raise ValueError("an adapter leaves the text embedding as it is; train_text_embedding needs method full")
        if len(set(self.lora_layers)) < len(self.lora_layers):
            raise ValueError("lora_layers names the same layers twice; name them once")
        names = [speaker.name for speaker in self.speakers]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"two speakers are called {twice}; every speaker needs a name of their own")
        if self.deepspeed and not self.uses_deepspeed:
            raise ValueError(f"deepspeed options need a zero strategy, not {self.strategy}")
        if self.offload == "nvme" and self.strategy != "zero3":
            raise ValueError("offload to nvme needs strategy zero3")
        if (self.offload == "nvme") != (self.nvme_folder is not None):
            raise ValueError("nvme_folder and offload nvme go together: set both or neither")
        if self.offload == "cpu" and self.strategy == "ddp":
            raise ValueError("ddp keeps everything on the device; offload needs an fsdp2 or zero strategy")
        if self.strategy == "fsdp2-hybrid" and (self.num_workers < 4 or self.num_workers % 2):
            raise ValueError("fsdp2-hybrid needs an even number of workers, 4 or more: groups that shard, and copies")
        return self

    @property
    def uses_deepspeed(self) -> bool:
        """Whether the strategy is one of DeepSpeed's (ZeRO)."""
        return self.strategy.startswith("zero")

    @property
    def lora(self) -> LoraConfig | None:
        """The adapter that is trained; None where all weights are."""
        if self.method == "full":
            return None
        return LoraConfig(
            rank=self.lora_rank, alpha=self.lora_alpha, dropout=self.lora_dropout, layers=self.lora_layers
        )

    def offload_problem(self, num_workers: int) -> str | None:
        """Why nothing would be offloaded by so few workers; None if it would be, or is not asked for."""
        if num_workers > 1 or self.offload == "none" or self.uses_deepspeed:
            return None
        return (
            f"{self.strategy} shares weights among workers, and one worker alone keeps everything on its device. "
            "Use zero2 or zero3 to offload, or at least 2 workers."
        )

    @property
    def method_in_words(self) -> str:
        """What is trained, to be read by the user."""
        if self.method == "full":
            return "all weights"
        *others, last = self.lora_layers
        return f"an adapter of rank {self.lora_rank} on {' and '.join(filter(None, (', '.join(others), last)))}"

    @property
    def speakers(self) -> tuple[JobSpeaker, ...]:
        """Everybody who is taught, in the order of the rows that they get in exports."""
        first = JobSpeaker(voice=self.voice, dataset=self.dataset, dataset_digest=self.dataset_digest)
        return (first, *self.more_speakers)

    def with_datasets(self, folders: Sequence[Path]) -> Self:
        """The job with its speakers' datasets in other folders, one for each of them."""
        first, *others = folders
        more = [
            speaker.model_copy(update={"dataset": folder})
            for speaker, folder in zip(self.more_speakers, others, strict=True)
        ]
        return self.model_copy(update={"dataset": first, "more_speakers": tuple(more)})

    @property
    def checkpoint_family(self) -> str:
        """Strategies of the same family read each other's checkpoints."""
        return self.strategy if self.uses_deepspeed else "torch"

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Self:
        """Validate a job from a file, a form or another process.

        Raises:
            JobInvalid: what is wrong with it, on one line, with the nearest name for a misspelt one.
        """
        try:
            return cls.model_validate(raw)
        except ValidationError as error:
            raise JobInvalid(
                f"The fine-tune job is invalid: {'; '.join(_explain(error, cls.model_fields))}."
            ) from error

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a job file.

        Raises:
            JobInvalid: it is missing, or does not hold a valid job.
        """
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise JobInvalid(f"The job {path} cannot be read: {error.strerror}.") from error
        except ValueError as error:
            raise JobInvalid(f"The job {path} is not JSON: {error}.") from error
        if not isinstance(raw, dict):
            raise JobInvalid(f"The job {path} must hold one JSON object.")
        return cls.parse(raw)

    def write(self, path: Path) -> None:
        """Write a job file, for `read` on this machine or another."""
        path.write_text(self.model_dump_json(indent=1) + "\n", encoding="utf-8")

    def differences(self, earlier: FineTuneJob) -> list[str]:
        """Names of the fields that differ from an earlier job and would change what a resumed run learns."""
        own, before = (job.with_datasets([Path()] * len(job.speakers)) for job in (self, earlier))
        return [
            name
            for name in type(self).model_fields
            if name not in _FREE_ON_RESUME and getattr(own, name) != getattr(before, name)
        ]


def _clean_voice(voice: str) -> str:
    voice = voice.strip()
    if not 1 <= len(voice) <= MAX_NAME_LENGTH or not begins_name(voice[0]) or not all(map(is_part_of_name, voice)):
        raise ValueError(
            f"a voice's name is 1 to {MAX_NAME_LENGTH} letters, digits, spaces and - _ . ' & ( ), no mark first"
        )
    return voice


def _explain(error: ValidationError, known: Iterable[str]) -> list[str]:
    reasons = []
    for one in error.errors(include_url=False):
        name = ".".join(map(str, one["loc"]))
        if one["type"] == "extra_forbidden":
            near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
            reasons.append(f"there is no option {name!r}" + (f", did you mean {near[0]!r}?" if near else ""))
        elif one["type"] == "missing":
            reasons.append(f"{name} is missing")
        else:
            message = one["msg"].removeprefix("Value error, ")
            reasons.append(f"{name}: {message}" if name else message)
    # The caller ends the sentence.
    return [reason.rstrip(".?") for reason in reasons]
