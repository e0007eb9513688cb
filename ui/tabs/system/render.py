"""What System says: what is on the disk, and the doctor's findings. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from backend.background_tasks import TaskState
from backend.cluster.size import ClusterSize
from backend.doctor.finding import Finding, Level
from backend.doctor.inventory import Inventory, StoredModel
from backend.serving.memory import MemoryUse
from ui.html.messages import NOTHING, cards, says, task_line
from ui.html.templates import html, render
from ui.html.words import size_in_words
from ui.words.sentences import translated
from ui.words.words import say, say_count

LEVEL_WORDS = {Level.BROKEN: "system.broken", Level.LIMITED: "system.limited", Level.GOOD: "system.good"}
"""In the order in which findings are listed."""


@dataclass(frozen=True, kw_only=True)
class Examined:
    """What was found.

    Attributes:
        cluster: its address, if there is one.
        size: of the cluster, if it answered.
        problem: why it did not.
        memory: what the models that are loaded hold, in bytes by device and owner; empty without one.
        num_adapters: voices' adapters among it.
        speaks_on: address of the cluster that the model speaks on; empty where it speaks here.
    """

    findings: tuple[Finding, ...]
    inventory: Inventory
    num_cpus: int
    num_gpus: int
    cluster: str | None
    size: ClusterSize | None = None
    problem: str = ""
    memory: MemoryUse = field(default_factory=dict)
    num_adapters: int = 0
    speaks_on: str = ""


def findings_html(findings: Sequence[Finding]) -> Markup:
    """The doctor's findings, problems first."""
    order = list(LEVEL_WORDS)
    ordered = sorted(findings, key=lambda finding: order.index(finding.level))
    return render(
        "system", "findings", findings=ordered, words={level: say(words) for level, words in LEVEL_WORDS.items()}
    )


def models_html(models: Sequence[StoredModel], caption: str) -> Markup:
    """Models with their sizes, on disk or to download."""
    return render("system", "models", caption=caption, models=[(model, _whereabouts(model)) for model in models])


def _whereabouts(model: StoredModel) -> str:
    if model.is_here:
        return say("system.here", size=size_in_words(model.num_bytes))
    return say("system.not_here", size=size_in_words(model.num_bytes)) if model.num_bytes else say("system.not_part")


def kept_html(inventory: Inventory) -> Markup:
    """What Encore stores, and the free space."""
    items = Markup().join(
        html("<li>{}: {}</li>", translated(folder.name), size_in_words(folder.num_bytes)) for folder in inventory.kept
    )
    free = say("system.free", size=size_in_words(inventory.free_bytes))
    text = html("<strong>{}</strong> {} <code>{}</code>.", free, say("system.free_where"), inventory.home)
    return says("", text, more=html("<ul>{}</ul>", items) if items else "")


def ray_html(examined: Examined) -> Markup:
    """What datasets and fine-tunes are computed on."""
    if examined.cluster is not None:
        where = html("<strong>{}</strong>", say("system.cluster", address=examined.cluster))
        if examined.size is None:
            return says("bad", html("{} {}", where, translated(examined.problem)))
        return says("good", html("{} {}", where, _cluster_in_words(examined.size)))
    cores = say_count(examined.num_cpus, "system.core", "system.cores")
    machine = say("system.without_gpu", cores=cores)
    if examined.num_gpus:
        gpus = say_count(examined.num_gpus, "system.gpu", "system.gpus")
        machine = say("system.with_gpu", cores=cores, gpus=gpus)
    words = (say("system.this_machine"), machine, say("system.ray_starts"))
    return says("good", html("<strong>{}</strong> {} {}", *words))


def memory_html(examined: Examined) -> Markup:
    """What the models that are loaded hold in memory; voices with adapters share one base model."""
    if examined.speaks_on:
        return says("", say("system.held_there", address=examined.speaks_on))
    held = [owners for owners in examined.memory.values() if "weights" in owners]
    if not held:
        return says("", say("system.no_model"))
    sizes = {name: size_in_words(sum(owners.get(name, 0) for owners in held)) for name in ("weights", "adapters")}
    return says(
        "",
        say(
            "system.held",
            weights=sizes["weights"],
            adapters=sizes["adapters"],
            voices=say_count(examined.num_adapters, "system.adapter", "system.adapters"),
        ),
    )


def _cluster_in_words(size: ClusterSize) -> str:
    gpus = say("system.free_gpus", free=f"{size.free_gpus:g}", gpus=f"{size.num_gpus:g}")
    return say(
        "system.cluster_free",
        machines=say_count(size.num_machines, "system.machine", "system.machines"),
        free_cpus=f"{size.free_cpus:g}",
        cpus=f"{size.num_cpus:g}",
        free_memory=size_in_words(int(size.free_memory_bytes)),
        memory=size_in_words(int(size.memory_bytes)),
        gpus=gpus if size.num_gpus else say("system.no_gpu"),
    )


def examined_html(examined: Examined) -> Markup:
    """All of it, below each other."""
    return cards(
        [
            findings_html(examined.findings),
            html("<h3>{}</h3>", say("system.computing")),
            ray_html(examined),
            html("<h3>{}</h3>", say("system.memory")),
            memory_html(examined),
            html("<h3>{}</h3>", say("system.disk")),
            kept_html(examined.inventory),
            models_html(examined.inventory.models, say("system.speakers")),
            models_html(examined.inventory.whispers, say("system.whispers")),
        ]
    )


def download_line(state: TaskState[Any] | None) -> Markup:
    """Progress of the download of a Whisper model, and that it is there."""
    if state is None or state.is_running or state.problem:
        return task_line(state, size_in_words) if state is not None else NOTHING
    return says("good", html("<strong>{}:</strong> {}", state.what, say("system.is_here")))
