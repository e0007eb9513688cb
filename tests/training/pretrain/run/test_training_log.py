from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from torch import nn

from training.pretrain.errors import PretrainError
from training.pretrain.run.loss_curve import write_loss_curve
from training.pretrain.run.training_log import TrainingLog, read_log
from training.pretrain.run.training_state import has_state, load_state, read_job, save_state, step_random
from training.pretrain.talker.job import TalkerJob


class Job(BaseModel):
    rate: float = 0.1


def test_a_line_holds_the_means_since_the_last_and_says_how_long_it_will_take(tmp_path: Path):
    said: list[str] = []
    log = TrainingLog(tmp_path, 10, said.append)
    for step in range(4):
        log.begin_step()
        log.add({"loss": float(step)})
        if step % 2:
            log.write(step + 1, learning_rate=0.5)
    log.write_validation(4, {"voice": 0.25, "perplexity/0": 3.0})
    assert list(read_log(tmp_path)) == [
        {"step": 2, "loss": 0.5, "learning_rate": 0.5},
        {"step": 4, "loss": 2.5, "learning_rate": 0.5},
        {"step": 4, "validation/voice": 0.25, "validation/perplexity/0": 3.0},
    ]
    assert said[1].startswith("4 of 10: loss 2.500; ")
    assert said[1].endswith(" s a step, 0:00 h left")
    assert said[2] == "4, held out: voice 0.250"


def test_lines_beyond_the_state_are_forgotten_even_if_cut_off(tmp_path: Path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 2, "loss": 1.0}\n{"step": 4, "loss": 2.0}\n{"step": 6, "loss"')
    log = TrainingLog(tmp_path, 10, lambda line: None)
    log.forget_after(2)
    assert path.read_text() == '{"step": 2, "loss": 1.0}\n'
    log.forget_after(0)
    assert path.read_text() == ""


def network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))


def learn(learner: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> float:
    optimizer.zero_grad()
    loss = learner(torch.randn(8, 4, generator=step_random(1, step))).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()


def test_a_loaded_state_learns_on_as_if_nothing_had_happened(tmp_path: Path):
    whole = network()
    optimizer = torch.optim.AdamW(whole.parameters(), lr=0.1)
    for step in range(3):
        learn(whole, optimizer, step)
    assert not has_state(tmp_path)
    save_state(tmp_path, Job(), 3, {"a": whole}, {"a": optimizer}, corpus_size=17)
    expected = [learn(whole, optimizer, step) for step in range(3, 6)]

    again = network()
    optimizer = torch.optim.AdamW(again.parameters(), lr=0.1)
    assert load_state(tmp_path, Job(), {"a": again}, {"a": optimizer}) == (3, 17)
    assert [learn(again, optimizer, step) for step in range(3, 6)] == expected


def test_a_state_of_another_recipe_or_network_is_refused(tmp_path: Path):
    save_state(tmp_path, Job(), 1, {"a": network()}, {}, corpus_size=1)
    assert has_state(tmp_path)
    assert read_job(tmp_path) == {"rate": 0.1}
    with pytest.raises(PretrainError, match=r"rate 0\.1 instead of 0\.2"):
        load_state(tmp_path, Job(rate=0.2), {"a": network()}, {})
    with pytest.raises(PretrainError, match="another version of the network"):
        load_state(tmp_path, Job(), {"a": nn.Linear(2, 2)}, {})


def test_a_talker_run_saved_with_the_former_names_is_the_same_run(tmp_path: Path):
    job = TalkerJob(in_context_ratio=0.25, explicit_language_ratio=0.125, min_lr_ratio=0.0625)
    save_state(tmp_path, job, 1, {"a": network()}, {}, corpus_size=1)
    path = next(tmp_path.rglob("job.json"))
    text = path.read_text()
    for now, former in (
        ("in_context_ratio", "in_context_share"),
        ("explicit_language_ratio", "explicit_language_share"),
        ("min_lr_ratio", "final_share"),
    ):
        assert f'"{now}"' in text
        text = text.replace(f'"{now}"', f'"{former}"')
    path.write_text(text)
    assert load_state(tmp_path, job, {"a": network()}, {}) == (1, 1)


@given(seed=st.integers(0, 2**32), step=st.integers(0, 2**32 - 2))
def test_steps_draw_apart_and_repeatably(seed: int, step: int):
    drawn, again, following = (torch.rand(4, generator=step_random(seed, at)) for at in (step, step, step + 1))
    assert torch.equal(drawn, again)
    assert not torch.equal(drawn, following)


def test_the_curve_is_a_picture_with_a_row_for_each_quantity(tmp_path: Path):
    lines = [{"step": 2.0, "loss": 3.0}, {"step": 4.0, "loss": 1.0, "held/a<b": 2.0, "held/c": 1.0}]
    write_loss_curve(tmp_path / "curve.svg", lines, title="Tiny & small")
    picture = ElementTree.fromstring((tmp_path / "curve.svg").read_text())
    texts = [text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[0] == "Tiny & small, 4 steps"
    assert {"loss", "held", "a<b", "c"} <= set(texts)
    curves = list(picture.iter("{http://www.w3.org/2000/svg}polyline"))
    assert [len(curve.attrib["points"].split()) for curve in curves] == [2]
    # A single value is a dot, where it can be seen.
    assert len(list(picture.iter("{http://www.w3.org/2000/svg}circle"))) == 2
    # Falling losses fall on the page: down is a growing y.
    (_, first_y), (_, last_y) = (map(float, point.split(",")) for point in curves[0].attrib["points"].split())
    assert last_y > first_y


def test_an_empty_log_makes_an_empty_picture(tmp_path: Path):
    write_loss_curve(tmp_path / "curve.svg", [], title="Nothing")
    assert ElementTree.fromstring((tmp_path / "curve.svg").read_text()) is not None
