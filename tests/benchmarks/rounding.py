"""How much of what a fine-tune has learned is left in an export, whose weights are bfloat16.

    python -m tests.benchmarks.rounding --dataset HOME/datasets/NAME --model assets/mini \
        --output tests/benchmarks/results/DATE-rounding-mini.md

A model is fine-tuned in one process, without Ray. Its weights, or those half-way to them, are put back into the network
in float32, rounded to the nearest of bfloat16, and rounded as exports are. All three have their losses on the same
batches of the dataset, and the share of what float32 has gained that each of them has.
"""

from __future__ import annotations

import argparse
import datetime
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from tests.benchmarks.machine import describe_machine
from tests.benchmarks.report import line
from training.data.batching import BatchPlan, generator_of
from training.data.code_rows import CARD_FILE
from training.data.training_set import TrainingSet
from training.job import FineTuneJob
from training.job_data import plan_data
from training.loop import learning_rate_of
from training.loss import SpeechLoss
from training.model.checkpoint.reading import find_weights, load_weights, read_config
from training.model.checkpoint.rounding import round_on_average
from training.model.network.talker import Talker
from training.strategies.torch_learner import make_optimizer

RECIPES = ((1e-5, 12), (1e-5, 48), (1e-4, 24))
"""Learning rates and steps: of large models, a short and a longer run, and of the embedded one."""

_NUM_JUDGED_STEPS = 4


@dataclass(frozen=True)
class Setting:
    """A job's data, in memory."""

    job: FineTuneJob
    training_set: TrainingSet
    batches: BatchPlan

    def network(self, weights: Mapping[str, Tensor] | None = None) -> SpeechLoss:
        """With the base model's weights, or with others."""
        config = read_config(self.job.base_model)
        talker = Talker(config.talker, config.code_predictor)
        load_weights(talker, find_weights(self.job.base_model), "talker.", dtype=torch.float32, device="cpu")
        network = SpeechLoss(talker.train(), code_predictor_fraction=self.job.code_predictor_fraction)
        if weights is not None:
            network.load_state_dict(dict(weights))
        return network

    def objectives(self, network: SpeechLoss, step: int) -> Iterator[Tensor]:
        """Of each micro-batch of a step, weighted by its labels, as `training.loop` does it."""
        plan = self.batches.step(step)
        for micro_batch in plan.micro_batches:
            batch = self.batches.collate(micro_batch)
            losses = network(batch, generator_of(micro_batch))
            talker = losses.talker * losses.num_talker_labels / (plan.num_frames + plan.num_clips)
            codes = losses.code_predictor * losses.num_code_labels
            codes = codes / (plan.num_frames * batch.inputs.residual_codes.shape[-1])
            yield talker + self.job.code_predictor_weight * codes

    def train(self) -> SpeechLoss:
        """The network after the job's steps, with float32 throughout."""
        network = self.network()
        optimizer = make_optimizer(network, self.job)
        for step in range(self.batches.num_steps):
            for objective in self.objectives(network, step):
                objective.backward()
            trained = [one for one in network.parameters() if one.requires_grad]
            torch.nn.utils.clip_grad_norm_(trained, self.job.max_gradient_norm)
            for group in optimizer.param_groups:
                group["lr"] = learning_rate_of(self.job, step, self.batches.num_steps)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return network

    @torch.no_grad()
    def objective(self, weights: Mapping[str, Tensor]) -> float:
        """On some steps' batches, which were trained on as well: of the same weights only the rounding differs."""
        network = self.network(weights)
        chosen = range(0, self.batches.num_steps, max(1, self.batches.num_steps // _NUM_JUDGED_STEPS))
        return sum(float(sum(self.objectives(network, step))) for step in chosen) / len(chosen)


def measure(dataset: Path, model: Path) -> Iterator[list[str]]:
    """A row of the table for every recipe and share of the change that is kept."""
    for rate, num_steps in RECIPES:
        digest = json.loads((dataset / CARD_FILE).read_text(encoding="utf-8"))["digest"]
        fields = {"dataset": dataset, "dataset_digest": digest, "base_model": model, "output": dataset / "none"}
        recipe = {"num_steps": num_steps, "learning_rate": rate, "code_predictor_fraction": 0.25}
        job = FineTuneJob.parse({"voice": "Reader", "device": "cpu", "precision": "fp32", **fields, **recipe})
        _, training_set, batches = plan_data(job)
        setting = Setting(job, training_set, batches)
        before = {name: tensor.clone() for name, tensor in setting.network().state_dict().items()}
        after = setting.train().state_dict()
        start = setting.objective(before)
        moved = torch.cat([(after[name] - before[name]).flatten() for name in after if name in before])
        size = float(moved[moved != 0].square().mean().sqrt())
        for share in (1.0, 0.5):
            mixed = {name: before[name].lerp(after[name], share) for name in after}
            nearest = {name: tensor.bfloat16().float() for name, tensor in mixed.items()}
            average = {name: round_on_average(tensor, name).float() for name, tensor in mixed.items()}
            full, *rounded = (setting.objective(weights) for weights in (mixed, nearest, average))
            kept = [f"{one:.4f} ({(start - one) / (start - full):.0%})" for one in rounded]
            yield [f"{rate:g}, {num_steps}", f"{share:g}", f"{share * size:.1e}", f"{start:.4f}", f"{full:.4f}", *kept]


def main() -> None:
    """Measure and write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    titles = ["rate, steps", "share kept", "mean change", "base", "float32", "nearest", "as exported"]
    rows = [line(titles[0], titles[1:]), line("---", ["---"] * (len(titles) - 1))]
    rows += [line(row[0], row[1:]) for row in measure(options.dataset.resolve(), options.model.resolve())]
    about = [f"# Rounding of exports, {options.model.name}, {datetime.date.today()}", "", *describe_machine("cpu"), ""]
    options.output.write_text("\n".join([*about, *rows, ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
