"""What the system tab says, without a page."""

from __future__ import annotations

from dataclasses import replace

from backend.background_tasks import TaskState
from backend.cluster.size import ClusterSize
from backend.doctor.finding import Finding, Level
from backend.doctor.inventory import take_inventory
from backend.settings import Settings
from ui.tabs.system import render as render_system
from ui.tabs.system.render import Examined
from ui.words.words import spoken_to


def test_what_is_wrong_comes_first_with_its_remedy():
    findings = [
        Finding(name="Disk", level=Level.GOOD, found="Much."),
        Finding(name="Model", level=Level.BROKEN, found="<b>gone</b>", remedy="Choose one."),
    ]
    html = render_system.findings_html(findings)
    assert html.index("Model") < html.index("Disk")
    assert "Choose one." in html
    assert "<b>" not in html


def test_findings_are_in_the_language_of_the_page():
    finding = Finding(
        name="Memory",
        level=Level.LIMITED,
        found="1.2 of 4.0 GB are free.",
        remedy="Close other programs before training.",
    )
    with spoken_to("de"):
        html = render_system.findings_html([finding])
    for words in ("Speicher", "1.2 von 4.0 GB sind frei.", "Schließe vor dem Anpassen andere Programme."):
        assert words in html


def test_the_inventory_counts_what_is_there(tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "a").write_bytes(b"x" * 3_000_000)
    (tmp_path / "runs" / "same").hardlink_to(tmp_path / "runs" / "a")
    inventory = take_inventory(Settings(home=tmp_path))
    assert [(folder.name, folder.num_bytes) for folder in inventory.kept] == [
        ("Runs with their checkpoints", 3_000_000)
    ]
    examined = Examined(findings=(), inventory=inventory, num_cpus=4, num_gpus=0, cluster=None)
    html = render_system.examined_html(examined)
    assert "Runs with their checkpoints: 3 MB" in html
    assert "4 CPU cores, no GPU" in html
    assert "Qwen/Qwen3-TTS-12Hz-0.6B-Base" in html
    assert "large-v3" in html


def test_adapters_are_a_part_of_the_memory():
    examined = Examined(findings=(), inventory=None, num_cpus=4, num_gpus=0, cluster=None)
    assert "No model is loaded." in render_system.memory_html(examined)
    held = {"cpu": {"weights": 90_000_000, "adapters": 12_000_000, "other": 5}}
    assert "90 MB of models that speak, and 12 MB of 3 adapters." in render_system.memory_html(
        replace(examined, memory=held, num_adapters=3)
    )


def test_a_cluster_says_what_is_free(tmp_path):
    inventory = take_inventory(Settings(home=tmp_path))
    size = ClusterSize(
        num_machines=2, num_cpus=16, free_cpus=12.5, num_gpus=2, free_gpus=1, memory_bytes=64e9, free_memory_bytes=32e9
    )
    joined = Examined(findings=(), inventory=inventory, num_cpus=4, num_gpus=0, cluster="<a>:6379", size=size)
    html = render_system.ray_html(joined)
    assert "&lt;a&gt;:6379" in html
    assert "2 machines. Free are 12.5 of 16 CPU cores, 32.0 GB of 64.0 GB memory, 1 of 2 GPUs." in html
    silent = Examined(findings=(), inventory=inventory, num_cpus=4, num_gpus=0, cluster="a:1", problem="Nobody & none")
    assert "Nobody &amp; none" in render_system.ray_html(silent)


def test_a_download_is_told_to_its_end():
    under_way = render_system.download_line(TaskState(what="Whisper base", num_done=50_000_000, num_total=100_000_000))
    assert "50 MB of 100 MB" in under_way
    assert 'aria-valuenow="50"' in under_way
    assert "it is here" in render_system.download_line(TaskState(what="Whisper base", is_running=False))
