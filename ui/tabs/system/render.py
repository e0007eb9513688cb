"""What the system tab says: the model in use, what is on the disk, and the doctor's findings. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from backend.background_tasks import TaskState
from backend.cluster.size import ClusterSize
from backend.doctor.finding import Finding, Level
from backend.doctor.inventory import Inventory, StoredModel
from ui.html.base import DEVICES, NOTHING, PRECISIONS, says, size_in_words, time_in_words
from ui.tabs.dataset.render import progress_bar

LEVEL_WORDS = {Level.GOOD: "fine", Level.LIMITED: "limited", Level.BROKEN: "not working"}


@dataclass(frozen=True, kw_only=True)
class Examined:
    """What was found at one look."""

    findings: tuple[Finding, ...]
    inventory: Inventory
    num_cpus: int
    num_gpus: int
    cluster: str | None
    size: ClusterSize | None = None
    """Of the cluster, if there is one and it answered."""
    problem: str = ""
    """Why it did not."""


def model_in_use(name: str | None, precision: str, device: str) -> str:
    """Which model speaks, and where to choose another."""
    if name is None:
        return says("mixed", "No model is loaded. Choose one at the top of the page.")
    how, where = PRECISIONS.get(precision, precision), DEVICES.get(device, device)
    return says(
        "good",
        f"<strong>{escape(name)}</strong>, in {escape(how)} on {escape(where)}. "
        "Another one is chosen at the top of the page.",
    )


def findings_html(findings: Sequence[Finding]) -> str:
    """The doctor's findings, what is wrong first."""
    order = [Level.BROKEN, Level.LIMITED, Level.GOOD]
    rows = "".join(
        f'<tr><th scope="row">{escape(finding.name)}</th>'
        f'<td class="{finding.level.value}"><strong>{LEVEL_WORDS[finding.level]}</strong></td>'
        f"<td>{escape(finding.found)}{f'<br>{escape(finding.remedy)}' if finding.remedy else ''}</td></tr>"
        for finding in sorted(findings, key=lambda finding: order.index(finding.level))
    )
    return (
        '<table class="findings"><thead><tr><th scope="col">What</th><th scope="col">State</th>'
        f'<th scope="col">Found, and what to do</th></tr></thead><tbody>{rows}</tbody></table>'
    )


def models_html(models: Sequence[StoredModel], caption: str) -> str:
    """Models with what they take, here or to download."""
    rows = "".join(
        f'<tr><th scope="row"><code>{escape(model.name)}</code></th>'
        f"<td>{_whereabouts(model)}</td><td>{escape(model.purpose)}</td></tr>"
        for model in models
    )
    return (
        f'<table class="findings"><caption>{escape(caption)}</caption><thead><tr><th scope="col">Model</th>'
        f'<th scope="col">On this machine</th><th scope="col">Good for</th></tr></thead><tbody>{rows}</tbody></table>'
    )


def _whereabouts(model: StoredModel) -> str:
    if model.is_here:
        return f"here, {size_in_words(model.num_bytes)}"
    return f"not here, {size_in_words(model.num_bytes)} to download" if model.num_bytes else "not part of this copy"


def kept_html(inventory: Inventory) -> str:
    """What Encore keeps, and the room that is left."""
    items = "".join(f"<li>{escape(folder.name)}: {size_in_words(folder.num_bytes)}</li>" for folder in inventory.kept)
    listed = f"<ul>{items}</ul>" if items else ""
    return says(
        "",
        f"<strong>{size_in_words(inventory.free_bytes)} are free</strong> where Encore keeps things, in "
        f"<code>{escape(inventory.home)}</code>.",
        more=listed,
    )


def ray_html(examined: Examined) -> str:
    """What datasets and fine-tunes are computed on."""
    if examined.cluster is not None:
        where = f"<strong>Ray cluster at {escape(examined.cluster)}:</strong>"
        if examined.size is None:
            return says("bad", f"{where} {escape(examined.problem)}")
        return says("good", f"{where} {_cluster_in_words(examined.size)}")
    gpus = f" and {examined.num_gpus} GPUs" if examined.num_gpus else ", no GPU"
    return says(
        "good",
        f"<strong>Ray on this machine:</strong> {examined.num_cpus} processor cores{gpus}. It starts with a build or a "
        "run and ends with it. Set <code>RAY_ADDRESS</code> before the start to use a cluster.",
    )


def _cluster_in_words(size: ClusterSize) -> str:
    machines = "1 machine" if size.num_machines == 1 else f"{size.num_machines} machines"
    gpus = f"{size.free_gpus:g} of {size.num_gpus:g} GPUs" if size.num_gpus else "no GPU"
    memory = f"{size_in_words(int(size.free_memory_bytes))} of {size_in_words(int(size.memory_bytes))} memory"
    return f"{machines}. Free are {size.free_cpus:g} of {size.num_cpus:g} processor cores, {memory}, {gpus}."


def examined_html(examined: Examined) -> str:
    """All of it, below each other."""
    parts = [
        findings_html(examined.findings),
        "<h3>Computing</h3>",
        ray_html(examined),
        "<h3>Disk</h3>",
        kept_html(examined.inventory),
        models_html(examined.inventory.models, "Models that speak"),
        models_html(examined.inventory.whispers, "Whisper models, which write down what is said"),
    ]
    return f'<div class="cards">{"".join(parts)}</div>'


def download_line(state: TaskState | None) -> str:
    """How the download of a Whisper model stands."""
    if state is None:
        return NOTHING
    if not state.is_running:
        if state.problem:
            return says("bad", escape(state.problem), role="alert")
        return says("good", f"<strong>{escape(state.what)}:</strong> it is here.")
    if not state.num_total:
        return says("", f"{escape(state.what)} …")
    percent = 100 * state.num_done // state.num_total
    left = f", about {time_in_words(state.seconds_left)} left" if state.seconds_left else ""
    return says(
        "",
        f"{escape(state.what)}: {size_in_words(state.num_done)} of {size_in_words(state.num_total)}{left}.",
        more=progress_bar(state.what, percent),
    )
