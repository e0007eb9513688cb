"""What System says: what is on the disk, and the doctor's findings. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from backend.background_tasks import TaskState
from backend.cluster.size import ClusterSize
from backend.doctor.finding import Finding, Level
from backend.doctor.inventory import Inventory, StoredModel
from ui.html.messages import NOTHING, cards, says, task_line
from ui.html.templates import html, render
from ui.html.words import count_of, size_in_words

EXAMINING = "Examining this machine"
LEVEL_WORDS = {Level.BROKEN: "not working", Level.LIMITED: "limited", Level.GOOD: "fine"}
"""In the order in which findings are listed."""


@dataclass(frozen=True, kw_only=True)
class Examined:
    """What was found.

    Attributes:
        cluster: its address, if there is one.
        size: of the cluster, if it answered.
        problem: why it did not.
    """

    findings: tuple[Finding, ...]
    inventory: Inventory
    num_cpus: int
    num_gpus: int
    cluster: str | None
    size: ClusterSize | None = None
    problem: str = ""


def findings_html(findings: Sequence[Finding]) -> Markup:
    """The doctor's findings, problems first."""
    order = list(LEVEL_WORDS)
    ordered = sorted(findings, key=lambda finding: order.index(finding.level))
    return render("system", "findings", findings=ordered, words=LEVEL_WORDS)


def models_html(models: Sequence[StoredModel], caption: str) -> Markup:
    """Models with their sizes, on disk or to download."""
    return render("system", "models", caption=caption, models=[(model, _whereabouts(model)) for model in models])


def _whereabouts(model: StoredModel) -> str:
    if model.is_here:
        return f"here, {size_in_words(model.num_bytes)}"
    return f"not here, {size_in_words(model.num_bytes)} to download" if model.num_bytes else "not part of this copy"


def kept_html(inventory: Inventory) -> Markup:
    """What Encore stores, and the free space."""
    items = Markup().join(
        html("<li>{}: {}</li>", folder.name, size_in_words(folder.num_bytes)) for folder in inventory.kept
    )
    text = html(
        "<strong>{} are free</strong> where Encore stores its files, in <code>{}</code>.",
        *(size_in_words(inventory.free_bytes), inventory.home),
    )
    return says("", text, more=html("<ul>{}</ul>", items) if items else "")


def ray_html(examined: Examined) -> Markup:
    """What datasets and fine-tunes are computed on."""
    if examined.cluster is not None:
        where = html("<strong>Ray cluster at {}:</strong>", examined.cluster)
        if examined.size is None:
            return says("bad", html("{} {}", where, examined.problem))
        return says("good", html("{} {}", where, _cluster_in_words(examined.size)))
    gpus = f" and {count_of(examined.num_gpus, 'GPU')}" if examined.num_gpus else ", no GPU"
    text = html(
        "<strong>Ray on this machine:</strong> {}{}. It starts with a build or a run and ends with it. Set "
        "<code>RAY_ADDRESS</code> before the start to use a cluster.",
        *(count_of(examined.num_cpus, "CPU core"), gpus),
    )
    return says("good", text)


def _cluster_in_words(size: ClusterSize) -> str:
    gpus = f"{size.free_gpus:g} of {size.num_gpus:g} GPUs" if size.num_gpus else "no GPU"
    memory = f"{size_in_words(int(size.free_memory_bytes))} of {size_in_words(int(size.memory_bytes))} memory"
    machines = count_of(size.num_machines, "machine")
    return f"{machines}. Free are {size.free_cpus:g} of {size.num_cpus:g} CPU cores, {memory}, {gpus}."


def examined_html(examined: Examined) -> Markup:
    """All of it, below each other."""
    return cards(
        [
            findings_html(examined.findings),
            html("<h3>Computing</h3>"),
            ray_html(examined),
            html("<h3>Disk</h3>"),
            kept_html(examined.inventory),
            models_html(examined.inventory.models, "Models that speak"),
            models_html(examined.inventory.whispers, "Whisper models, which transcribe speech"),
        ]
    )


def download_line(state: TaskState[Any] | None) -> Markup:
    """Progress of the download of a Whisper model, and that it is there."""
    if state is None or state.is_running or state.problem:
        return task_line(state, size_in_words) if state is not None else NOTHING
    return says("good", html("<strong>{}:</strong> it is here.", state.what))
