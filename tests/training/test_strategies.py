"""However a model is spread over workers, it learns the same; and a stopped run goes on as if it never was."""

from __future__ import annotations

import shutil

import pytest
import torch

from tests.golden import GOLDEN_CHECKPOINT
from tests.training.finetuning import make_rows, run_stages, stage, task, write_dataset
from tests.training.recorded_runs import FEW_STEPS, FRAME_COUNTS, HALF, Runs, assert_same_learning
from training.memory_plan import worker_memory
from training.model.checkpoint.reading import read_config


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Runs:
    runs = Runs(tmp_path_factory.mktemp("strategies"))
    runs.results.mkdir()
    write_dataset(runs.folder / "dataset", make_rows(FRAME_COUNTS, num_held_out=2))

    def few(name, strategy="ddp", num_workers=1, **changes):
        return runs.job(name, strategy, num_workers, **{"num_steps": FEW_STEPS, **changes})

    runs.here("single", runs.job("single", "ddp", 1))
    whole = {"micro_batches": 1, "micro_batch_tokens": 100_000}
    runs.here("one-batch", runs.job("one-batch", "ddp", 1, **whole))
    runs.here("accumulated", runs.job("accumulated", "ddp", 1, micro_batches=100, micro_batch_tokens=120))
    runs.here("few", few("few"))
    runs.here("fraction-1", few("fraction-1", code_predictor_fraction=0.25, misheard_share=0.2))
    runs.here("bucketed", runs.job("bucketed", "ddp", 1, **whole, batching="bucketed"))
    for name in ("fsdp2", "fsdp2-no-reshard"):
        runs.here(f"{name}-1", runs.job(f"{name}-1", name, 1, num_steps=2))
    runs.here("recompute", few("recompute", activation_checkpointing=True))
    two = [task(name, runs.job(name, name, 2)) for name in ("ddp", "fsdp2", "fsdp2-no-reshard")]
    two.append(task("fraction-2", few("fraction-2", "ddp", 2, code_predictor_fraction=0.25, misheard_share=0.2)))
    for strategy in ("ddp", "fsdp2"):
        name = f"{strategy}-stopped"
        job = few(name, strategy, 2)
        # The same run once more takes it up again.
        two += [task(f"{name}-1", job, stop_after=HALF), task(f"{name}-2", job)]
    two.append(task("half", few("half", "fsdp2", 2), stop_after=HALF))
    three = [task("half-to-3", few("half-to-3", "fsdp2", 3))]
    four = [
        task("fsdp2-hybrid", runs.job("fsdp2-hybrid", "fsdp2-hybrid", 4)),
        task("half-to-4", few("half-to-4", "fsdp2", 4)),
    ]
    # What optimizers hold is seen at the second step.
    four += [task(f"{name}-4", runs.job(f"{name}-4", name, 4, num_steps=2)) for name in ("ddp", "fsdp2-no-reshard")]
    copies = [(runs.folder / "half", runs.folder / f"half-to-{name}") for name in ("1", "1-fsdp2", "3", "4")]
    run_stages(runs.folder / "workers", [stage(2, two), stage(3, three, copies), stage(4, four)], runs.results)
    runs.here("half-to-1", few("half-to-1"))
    runs.here("half-to-1-fsdp2", few("half-to-1-fsdp2", "fsdp2"))
    return runs


@pytest.mark.parametrize("name", ["ddp", "fsdp2", "fsdp2-no-reshard", "fsdp2-hybrid"])
def test_all_strategies_learn_the_same(runs, name):
    assert_same_learning(runs, name, "single")


def test_activations_computed_twice_are_the_same(runs):
    assert_same_learning(runs, "recompute", "few")


def test_what_frames_are_drawn_and_what_is_misheard_is_the_same_for_all(runs):
    assert_same_learning(runs, "fraction-2", "fraction-1")
    for loss in ("talker_loss", "code_predictor_loss"):
        assert runs.reports("fraction-1")[0][loss] != runs.reports("few")[0][loss]


def test_accumulated_gradients_are_those_of_one_batch(runs):
    assert_same_learning(runs, "accumulated", "one-batch")


def test_clips_packed_into_one_row_teach_what_clips_in_rows_do(runs):
    assert_same_learning(runs, "bucketed", "one-batch")


def test_weights_have_moved(runs):
    before = read_weights_of_base()
    after = runs.weights("single")
    moved = {name for name, weight in after.items() if not torch.equal(weight, before[name])}
    assert before.keys() - moved == {"model.text_embedding.weight"}


def read_weights_of_base() -> dict[str, torch.Tensor]:
    from training.model.voice_model import VoiceModel  # noqa: PLC0415 - one test reads it

    return dict(VoiceModel.load(GOLDEN_CHECKPOINT, precision="fp32", device="cpu").talker.state_dict())


@pytest.mark.parametrize("name", ["ddp-stopped", "fsdp2-stopped"])
def test_a_stopped_run_goes_on_as_if_never_stopped(runs, name):
    assert [report["step"] for report in runs.reports(f"{name}-1")] == list(range(1, HALF + 1))
    shutil.copy(runs.results / f"{name}-2.json", runs.results / f"{name}.json")
    assert_same_learning(runs, name, "few", first_step=HALF)


@pytest.mark.parametrize("name", ["half-to-1", "half-to-1-fsdp2", "half-to-3", "half-to-4"])
def test_another_number_of_workers_and_another_strategy_go_on_too(runs, name):
    assert_same_learning(runs, name, "few", first_step=HALF)


@pytest.mark.parametrize(
    ("name", "strategy", "num_workers"),
    [
        ("single", "ddp", 1),
        ("fsdp2-1", "fsdp2", 1),
        ("fsdp2-no-reshard-1", "fsdp2-no-reshard", 1),
        ("ddp", "ddp", 2),
        ("fsdp2", "fsdp2", 2),
        ("fsdp2-no-reshard", "fsdp2-no-reshard", 2),
        ("fsdp2-hybrid", "fsdp2-hybrid", 4),
        ("half-to-3", "fsdp2", 3),
        ("half-to-4", "fsdp2", 4),
        ("ddp-4", "ddp", 4),
        ("fsdp2-no-reshard-4", "fsdp2-no-reshard", 4),
    ],
)
def test_memory_is_as_planned(runs, name, strategy, num_workers):
    planned = worker_memory(read_config(GOLDEN_CHECKPOINT), strategy, num_workers, compute_bytes=4).state.total
    assert runs.reports(name)[-1]["state_bytes"] == pytest.approx(planned, rel=0.01)
