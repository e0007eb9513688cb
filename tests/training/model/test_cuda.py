"""What only a GPU can show: captured graphs, and agreement with the CPU."""

from __future__ import annotations

import pytest
import torch

from tests.training.model.prompting import prompt_for
from training.model.generation.frame_loop import FrameLoop, FrameRequest
from training.model.generation.graphed_calls import GraphedCalls
from training.model.sampling_settings import Sampling
from training.model.voice_model import VoiceModel

pytestmark = pytest.mark.gpu


def decode(model, *, graphs, sampling, num_takes=1):
    loop = FrameLoop(model.talker, model.config, precision=model.precision, num_slots=num_takes, cache_length=512)
    if graphs:
        for key in loop.usual_graphs():
            loop.capture(key)
    else:
        loop._graphs = GraphedCalls(None)
    for slot in range(num_takes):
        speaker = torch.full((model.config.talker.hidden_size,), 0.05, device=model.device)
        prompt = prompt_for(model, "A few words, then a few more.")
        loop.admit(slot, FrameRequest(prompt=prompt, speaker=speaker, sampling=sampling, seed=slot, max_frames=300))
    frames = [[] for _ in range(num_takes)]
    while len(loop.free_slots) < num_takes:
        step = loop.step()
        for slot in step.spoke:
            frames[slot].append(step.codes_BQ[slot].cpu())
    return [torch.stack(codes) for codes in frames]


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.0, residual_temperature=0.0)])
def test_captured_graphs_decode_what_plain_calls_decode(golden_folder, sampling):
    model = VoiceModel.load(golden_folder, precision="fp32", device="cuda")
    captured, plain = (decode(model, graphs=graphs, sampling=sampling) for graphs in (True, False))
    assert torch.equal(captured[0], plain[0])


def test_a_take_on_the_gpu_starts_like_the_take_on_the_cpu(golden_folder):
    takes = []
    for device in ("cpu", "cuda"):
        model = VoiceModel.load(golden_folder, precision="fp32", device=device)
        takes.append(
            decode(model, graphs=device == "cuda", sampling=Sampling(temperature=0.0, residual_temperature=0.0))[0]
        )
    assert torch.equal(takes[0][:4], takes[1][:4])


def test_a_batch_on_the_gpu_is_its_takes_alone(golden_folder):
    model = VoiceModel.load(golden_folder, precision="fp32", device="cuda")
    together = decode(model, graphs=True, sampling=Sampling(), num_takes=3)
    assert torch.equal(together[0], decode(model, graphs=True, sampling=Sampling())[0])
