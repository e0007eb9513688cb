"""Which clips go into which step."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tests.training.finetuning import make_rows, padding_share, write_dataset
from training.data.batching import BatchPlan, BatchShape
from training.data.example import IGNORED
from training.data.training_set import ClipUse, read_training_set
from training.job import BATCHINGS

COUNTS = tuple(5 + (7 * index) % 40 for index in range(37))
SHAPE = BatchShape(micro_batches=4, micro_batch_tokens=150, max_tokens=200, in_context_ratio=0.3)


def read(folder, model, counts=COUNTS, styles=("",)):
    rows = [replace(row, style=styles[index % len(styles)]) for index, row in enumerate(make_rows(counts))]
    folder = write_dataset(folder, rows)
    return read_training_set(folder, model.config, model.text_tokenizer, max_tokens=200)[1]


@pytest.fixture(scope="module")
def training_set(tmp_path_factory, golden_model):
    return read(tmp_path_factory.mktemp("batching") / "dataset", golden_model)


def steps(plan):
    return [plan.step(index) for index in range(plan.num_steps)]


@pytest.mark.parametrize("batching", BATCHINGS)
def test_every_epoch_has_every_clip_once(training_set, batching):
    plan = BatchPlan(training_set, replace(SHAPE, batching=batching), seed=1, num_epochs=3)
    for epoch in range(3):
        used = Counter(
            use.clip for step in steps(plan) if step.epoch == epoch for part in step.micro_batches for use in part.uses
        )
        assert used == Counter(range(len(COUNTS)))


def test_the_seed_decides_everything(training_set):
    first, again, other = (steps(BatchPlan(training_set, SHAPE, seed=seed, num_epochs=2)) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    one_epoch = [step for step in first if step.epoch == 0]
    assert one_epoch != [step for step in first if step.epoch == 1]


def test_a_long_run_begins_before_all_of_it_is_planned(training_set):
    plan = BatchPlan(training_set, SHAPE, seed=1, num_epochs=1, num_steps=10**6)
    assert plan.num_steps == 10**6
    assert plan.step(plan.steps_per_epoch).epoch == 1
    assert len(plan._epochs) == 2


def test_more_steps_do_not_change_the_earlier_ones(training_set):
    few, many = (BatchPlan(training_set, SHAPE, seed=1, num_epochs=1, num_steps=number) for number in (3, 30))
    assert few.num_steps == 3
    assert many.num_steps == 30
    assert steps(few) == steps(many)[:3]


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 5])
def test_workers_share_a_step_out_without_changing_it(training_set, world_size):
    for step in steps(BatchPlan(training_set, SHAPE, seed=1, num_epochs=1)):
        shares = [step.share_of(rank, world_size) for rank in range(world_size)]
        assert len({len(share) for share in shares}) == 1
        counted = [micro_batch for share in shares for micro_batch in share if micro_batch.weight]
        assert sorted(counted, key=lambda part: part.seed) == sorted(step.micro_batches, key=lambda part: part.seed)


@pytest.mark.parametrize("batching", BATCHINGS)
def test_micro_batches_stay_within_their_budget(training_set, batching):
    plan = BatchPlan(training_set, replace(SHAPE, batching=batching), seed=1, num_epochs=1)
    for step in steps(plan):
        assert 1 <= len(step.micro_batches) <= SHAPE.micro_batches
        for micro_batch in step.micro_batches:
            num_tokens = plan.num_tokens(micro_batch)
            assert num_tokens == plan.collate(micro_batch).labels_BT.numel()
            assert num_tokens <= SHAPE.micro_batch_tokens or len(micro_batch.uses) == 1


def test_what_a_step_is_divided_by_is_what_it_holds(training_set):
    plan = BatchPlan(training_set, SHAPE, seed=1, num_epochs=1)
    step = plan.step(0)
    batches = [plan.collate(micro_batch) for micro_batch in step.micro_batches]
    assert step.num_frames == sum(int(batch.is_answer_BT.sum()) for batch in batches)
    assert step.num_frames + step.num_clips == sum(int((batch.labels_BT != IGNORED).sum()) for batch in batches)


def test_sorting_by_length_leaves_less_padding_and_packing_none(training_set):
    plans = {
        batching: BatchPlan(training_set, replace(SHAPE, batching=batching), seed=1, num_epochs=1)
        for batching in BATCHINGS
    }
    shares = {batching: padding_share(plan, training_set) for batching, plan in plans.items()}
    assert shares["packed"] == 0 < shares["bucketed"] < shares["shuffled"]
    assert len(steps(plans["packed"])) <= len(steps(plans["bucketed"])) <= len(steps(plans["shuffled"]))


def test_references_are_other_clips_that_fit(training_set):
    plan = BatchPlan(training_set, SHAPE, seed=1, num_epochs=4)
    uses = [use for step in steps(plan) for part in step.micro_batches for use in part.uses]
    paired = [use for use in uses if use.reference is not None]
    assert 0.1 * len(uses) < len(paired) < 0.5 * len(uses)
    assert all(use.reference != use.clip for use in paired)
    assert all(training_set.num_tokens(use) <= SHAPE.max_tokens for use in paired)


def test_references_are_of_the_same_style(tmp_path, golden_model):
    """And which clips have one does not depend on styles, so a style that is added changes no other draw."""
    styled = read(tmp_path / "styled", golden_model, styles=("calm", "", "calm", "excited"))
    plain = read(tmp_path / "plain", golden_model)

    def references(training_set):
        plan = BatchPlan(training_set, replace(SHAPE, max_tokens=1000), seed=1, num_epochs=8)
        uses = [use for step in steps(plan) for part in step.micro_batches for use in part.uses]
        return Counter((use.clip, use.reference) for use in uses if use.reference is not None)

    found = references(styled)
    assert all(clip != reference for clip, reference in found)
    assert {styled.clips[clip].style for clip, _ in found} == {"calm", "", "excited"}
    assert {(styled.clips[a].style, styled.clips[b].style) for a, b in found} == {
        ("calm", "calm"),
        ("", ""),
        ("excited", "excited"),
    }
    assert len({reference for _, reference in found}) > len(styled.clips) // 2
    assert sorted(clip for clip, _ in found.elements()) == sorted(clip for clip, _ in references(plain).elements())


def test_the_only_clip_of_its_style_has_no_reference(tmp_path, golden_model):
    training_set = read(tmp_path / "one", golden_model, (20, 20, 20), styles=("calm", "", ""))
    plan = BatchPlan(training_set, replace(SHAPE, in_context_ratio=1.0), seed=1, num_epochs=4)
    uses = {use for step in steps(plan) for part in step.micro_batches for use in part.uses}
    assert uses == {ClipUse(clip=0), ClipUse(clip=1, reference=2), ClipUse(clip=2, reference=1)}


def test_one_clip_is_a_step_without_a_reference(tmp_path, golden_model):
    plan = BatchPlan(read(tmp_path / "one", golden_model, (20,)), SHAPE, seed=1, num_epochs=2)
    assert [part.uses for step in steps(plan) for part in step.micro_batches] == [(ClipUse(clip=0),)] * 2
    assert [plan.ends_epoch(0), plan.ends_epoch(1)] == [True, True]
