import numpy as np
import pytest
import torch

from tests.training.pretrain.tiny_corpus import tone, write_corpus
from training.pretrain.corpus import Corpus, open_corpus
from training.pretrain.whisper_batches import SpeechSource, fill_up, join
from training.pretrain.whisper_job import NUM_POSITIONS, SAMPLES_PER_POSITION, WhisperJob

PLAIN = WhisperJob(positions_per_step=300, long_share=0.0, joined_share=0.0, silent_share=0.0)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return open_corpus(write_corpus(tmp_path_factory.mktemp("corpus") / "tones"))


def test_a_step_draws_the_same_wherever_it_is_entered(corpus: Corpus):
    source, again = SpeechSource(corpus, WhisperJob()), SpeechSource(corpus, WhisperJob())
    source.batch(6)
    first, second = source.batch(7), again.batch(7)
    assert torch.equal(first.samples, second.samples)
    assert first.said == second.said
    assert not torch.equal(first.samples[:2, :8000], source.batch(8).samples[:2, :8000])


def test_utterances_lie_where_their_times_say(corpus: Corpus):
    sounds = [(tone(number).astype(np.float32) / 32768, f"tone {number}") for number in range(3)]
    piece = join(sounds, [0.25, 0.1, 0.5], 0.3)
    for said, (sound, text) in zip(piece.said, sounds, strict=True):
        start, end = round(said.start_seconds * 16_000), round(said.end_seconds * 16_000)
        assert said.text == text
        assert np.array_equal(piece.samples[start:end], sound)
    assert len(piece.samples) == round((piece.said[-1].end_seconds + 0.3) * 16_000)


def test_steps_join_utterances_listen_long_and_hear_nobody(corpus: Corpus):
    joined = SpeechSource(corpus, PLAIN.model_copy(update={"joined_share": 1.0})).batch(0)
    assert {len(said) for said in joined.said} <= {2, 3}
    long = SpeechSource(corpus, PLAIN.model_copy(update={"long_share": 1.0})).batch(0)
    assert long.samples.shape[1] == NUM_POSITIONS * SAMPLES_PER_POSITION
    silent = SpeechSource(corpus, PLAIN.model_copy(update={"silent_share": 1.0})).batch(0)
    assert all(not said for said in silent.said)
    assert silent.samples.abs().max() < 0.1


def test_pieces_are_filled_up_to_whole_positions(corpus: Corpus):
    batch = SpeechSource(corpus, PLAIN).batch(3)
    assert batch.samples.shape[1] % SAMPLES_PER_POSITION == 0
    for said in batch.said:
        assert said[-1].end_seconds * 16_000 <= batch.samples.shape[1]
    filled = fill_up([join([(np.ones(100, np.float32), "one")], [0.0], 0.0)], 2)
    assert filled.samples[0].tolist() == [1.0] * 100 + [0.0] * 540
