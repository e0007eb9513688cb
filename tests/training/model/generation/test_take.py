from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.single_take import Synthesizer
from training.model.device import choose_device, supports_bf16
from training.model.errors import ModelError, PromptError
from training.model.generation.finish_reason import FinishReason
from training.model.generation.take_request import TakeRequest, VoicePrompt, build_prompt
from training.model.voice_model import VoiceModel, choose_precision

NUM_FRAMES = 14


@pytest.fixture(scope="module")
def synthesizer(golden_model):
    return Synthesizer(golden_model, cache_length=400, consume=False)


@pytest.fixture(scope="module")
def in_context(golden_model, speaker):
    codes = torch.randint(0, 64, (11, 16), generator=torch.Generator().manual_seed(1))
    return VoicePrompt(speaker=speaker, reference_codes=codes, reference_text="What it says.")


@pytest.fixture(scope="module")
def request_of(speaker):
    return TakeRequest(text="Hello.", voice=VoicePrompt(speaker=speaker), seed=5, max_frames=NUM_FRAMES)


def test_chunks_grow_and_are_the_whole_take(synthesizer, request_of):
    chunks = list(synthesizer.stream(request_of))
    take = synthesizer.speak(request_of)
    frame = synthesizer.model.speech_tokenizer.config.decode_upsample_rate
    assert [len(chunk) // frame for chunk in chunks][:3] == [1, 2, 4]
    assert np.abs(np.concatenate(chunks) - take.waveform).max() < 1e-4
    with torch.inference_mode():
        whole = synthesizer.model.speech_tokenizer.decode(take.codes.unsqueeze(0))[0]
    assert np.abs(whole.numpy() - take.waveform).max() < 1e-4


def test_in_context_audio_is_cut_exactly_behind_the_reference(synthesizer, request_of, in_context):
    request = replace(request_of, voice=in_context)
    take = synthesizer.speak(request)
    frame = synthesizer.model.speech_tokenizer.config.decode_upsample_rate
    with torch.inference_mode():
        codes = torch.cat((in_context.reference_codes, take.codes)).unsqueeze(0)
        whole = synthesizer.model.speech_tokenizer.decode(codes)[0]
    assert len(take.waveform) == len(take.codes) * frame
    assert np.abs(whole[len(in_context.reference_codes) * frame :].numpy() - take.waveform).max() < 1e-4
    # The decoder that has spoken the reference is kept; the second take must not notice the first.
    assert np.array_equal(synthesizer.speak(request).waveform, take.waveform)


def test_the_seed_decides_the_take(synthesizer, request_of):
    first, second = synthesizer.speak(request_of), synthesizer.speak(request_of)
    assert np.array_equal(first.waveform, second.waveform)
    other = synthesizer.speak(replace(request_of, seed=6))
    assert not torch.equal(other.codes, first.codes)


def test_leaving_early_frees_the_slot(synthesizer, request_of):
    stream = synthesizer.stream(request_of)
    next(stream.chunks)
    stream.chunks.close()
    assert stream.finish_reason is FinishReason.CANCELLED
    assert synthesizer.loop.free_slots == (0,)


def test_cancelling_stops_before_the_next_frame(synthesizer, request_of):
    stream = synthesizer.stream(request_of, cancelled=lambda: len(stream.codes) >= 4)
    list(stream)
    assert (stream.finish_reason, len(stream.codes)) == (FinishReason.CANCELLED, 4)


def test_a_take_that_fails_leaves_the_model_usable(synthesizer, request_of, monkeypatch):
    def fail(*_):
        raise RuntimeError("CUDA out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(synthesizer.loop._main, "prefill", fail)
        with pytest.raises(RuntimeError, match="memory"):
            synthesizer.speak(request_of)
    assert len(synthesizer.speak(request_of).codes) > 0


def test_a_long_reference_leaves_less_room_not_none(golden_model, request_of, in_context):
    short_of_room = Synthesizer(golden_model, cache_length=100, consume=False)
    request = replace(request_of, voice=in_context, max_frames=None, text="Hello there, you.")
    take = short_of_room.speak(request)
    assert len(take.codes) < 100
    with pytest.raises(PromptError, match="shorter"):
        short_of_room.speak(replace(request, text="Hello there, you. " * 5))


def runaway(request):
    """Neither a seed nor a cap of its own: what may be tried again."""
    return replace(request, seed=None, max_frames=None)


def count_streams(synthesizer, monkeypatch):
    seeds = []
    stream = synthesizer.stream
    monkeypatch.setattr(synthesizer, "stream", lambda *args: (found := stream(*args), seeds.append(found.seed))[0])
    return seeds


def test_a_runaway_is_tried_once_more_with_another_seed(synthesizer, request_of, monkeypatch):
    # As many frames as there are before speech may end, or random weights could end it.
    monkeypatch.setattr("training.model.generation.take_request.frame_cap", lambda *args, **kwargs: 2)
    seeds = count_streams(synthesizer, monkeypatch)
    take = synthesizer.speak(runaway(request_of))
    assert take.finish_reason is FinishReason.LENGTH
    assert len(set(seeds)) == 2
    assert take.seed == seeds[-1]


@pytest.mark.parametrize("asked", [{"seed": 3}, {"max_frames": 3}])
def test_what_was_asked_for_is_not_tried_again(synthesizer, request_of, monkeypatch, asked):
    monkeypatch.setattr("training.model.generation.take_request.frame_cap", lambda *args, **kwargs: 3)
    seeds = count_streams(synthesizer, monkeypatch)
    synthesizer.speak(replace(runaway(request_of), **asked))
    assert len(seeds) == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [({"text": " "}, "no text"), ({"language": "klingon"}, "klingon"), ({"max_frames": 10_000}, "shorter")],
)
def test_what_cannot_be_spoken_is_refused_before_the_first_chunk(synthesizer, request_of, change, words):
    with pytest.raises(PromptError, match=words):
        synthesizer.stream(replace(request_of, **change))


def test_streaming_text_and_an_instruction_reach_the_prompt(golden_model, request_of):
    plain = build_prompt(golden_model, request_of)
    streamed = build_prompt(golden_model, replace(request_of, streaming_text=True))
    assert len(streamed.inputs) + len(streamed.trailing_text_ids) < len(plain.inputs) + 2
    assert streamed.trailing_text_ids
    instructed = build_prompt(golden_model, replace(request_of, instruction="softly"))
    assert len(instructed.inputs) > len(plain.inputs)


@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_other_precisions_speak_too(golden_folder, request_of, precision):
    if precision == "bf16" and not supports_bf16(torch.device("cpu")):
        pytest.skip("this processor computes no bfloat16")
    model = VoiceModel.load(golden_folder, precision=precision, device="cpu")
    take = Synthesizer(model, cache_length=400).speak(request_of)
    assert np.isfinite(take.waveform).all()
    assert np.abs(take.waveform).max() <= 1
    assert take.waveform.std() > 0


def test_a_reference_is_analysed_alike_in_every_precision(golden_folder, golden_model):
    waveform = torch.sin(torch.arange(24_000) * 0.05) * 0.3
    rounded = VoiceModel.load(golden_folder, precision="int8", device="cpu")
    assert torch.equal(rounded.encode(waveform), golden_model.encode(waveform))
    assert torch.equal(rounded.embed_speaker(waveform), golden_model.embed_speaker(waveform))


def test_devices_and_precisions_that_are_not_there_are_refused():
    with pytest.raises(ModelError, match="no device"):
        choose_device("abacus")
    if not torch.cuda.is_available():
        with pytest.raises(ModelError, match="CUDA"):
            choose_device("cuda")
    with pytest.raises(ModelError, match="int8"):
        choose_precision("int8", torch.device("cuda"), 10**9)
    assert choose_precision("auto", torch.device("cpu"), 1000) == "fp32"
