# Shape letters: B batch, F mel frame, M mel band, D embedding width, V verifier's direction.
"""Trains a checkpoint's speaker encoder on altered speech; its talker stays, and so do the places of what it knows."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from training.model.checkpoint.reading import read_config
from training.model.network.speaker_encoder import SpeakerEncoder
from training.model.speaker_verifier import SpeakerVerifier, load_verifier
from training.pretrain.corpus.corpus import FULL_SCALE, HELD_OUT_PARAMETERS, HELD_OUT_VOICE, Corpus, open_corpus
from training.pretrain.errors import PretrainError
from training.pretrain.run import muon
from training.pretrain.run.run_start import record_start
from training.pretrain.run.training_run import TrainingRun
from training.pretrain.run.training_state import read_checkpoint
from training.pretrain.speaker.embedding_space import EmbeddingSpace
from training.pretrain.speaker.heard_voices import hear, open_heard_voices
from training.pretrain.speaker.job import SpeakerJob

WEIGHTS_PREFIX = "speaker_encoder."
_SPACE_FILE = "embedding-space.safetensors"
_FRAMES = (150, 260)
# By what recordings are louder or quieter, in nepers: the standard deviation.
_GAIN_NEPERS = 0.7
# Utterances of a speaker of the corpus that tell where it is.
_NUM_KNOWN_BY = 3
_REPORT_EVERY = 500
# The last utterances are not trained on: so many, or a quarter of a few.
_NUM_HELD_OUT = 400
_VALIDATED_PARTS = (HELD_OUT_PARAMETERS, HELD_OUT_VOICE)


class SpeakerTraining(TrainingRun):
    """One run, from its first step or from its saved state."""

    def __init__(
        self,
        job: SpeakerJob,
        corpus: Path,
        start: Path,
        run: Path,
        *,
        device: torch.device,
        report: Callable[[str], None],
        space_of: Path | None = None,
    ) -> None:
        """Continue or begin the run in `run`, with the speaker encoder of the checkpoint in `start`.

        `space_of` is an earlier run, with whose encoder the talker was trained on: voices stay where it put them.

        Raises:
            PretrainError: the checkpoint has no speaker encoder, the verifier's weights are missing, the corpus has
                fewer than two speakers, or the earlier run has not placed any.
        """
        super().__init__(job, run, device=device, report=report)
        self.job = job
        verifier = load_verifier()
        if verifier is None:
            raise PretrainError("The weights of the verifier in assets/verifier are missing or damaged.")
        if space_of is not None and not (space_of / _SPACE_FILE).is_file():
            raise PretrainError(f"{space_of} holds no run of the speaker encoder that has placed speakers.")
        self.encoder = read_encoder(start)
        config = self.encoder.config
        self._heard = open_heard_voices(corpus, run, job, config, verifier, report)
        self._num_trained_on = len(self._heard) - min(_NUM_HELD_OUT, len(self._heard) // 4)
        self.space = self._open_space(open_corpus(corpus), verifier, space_of)
        self._validation = {
            part: _voices(open_corpus(corpus, part), self.encoder, verifier)[1:] for part in _VALIDATED_PARTS
        }
        self.networks = {"speaker_encoder": self.encoder.to(device)}
        matrices, rest = muon.matrices_of(self.encoder)
        self.optimizers = {
            "muon": muon.Muon(matrices, lr=job.muon_learning_rate, weight_decay=job.weight_decay),
            "adamw": torch.optim.AdamW(rest, lr=job.peak_learning_rate, betas=job.adam_betas, weight_decay=0.0),
        }
        self.open(start, corpus_size=len(self._heard))

    def read_start(self, start: Path) -> None:
        """Begin with the weights of a checkpoint, which the encoder has already."""
        record_start(self.folder, start, stage="speaker")

    def train_step(self) -> dict[str, float]:
        """One update; returns its losses."""
        random = np.random.default_rng((self.job.seed, self.step))
        num_frames = int(random.integers(*_FRAMES))
        numbers = random.integers(self._num_trained_on, size=self.job.batch_size).tolist()
        mels_BFM = self._heard.excerpts(numbers, num_frames, random)
        gains = random.normal(0, _GAIN_NEPERS, size=(len(numbers), 1, 1)).astype(np.float32)
        wanted_BD = self.space.place(torch.stack([self._heard[number].direction_V for number in numbers]))
        missed = self.space.missed(self.encoder((mels_BFM + torch.from_numpy(gains)).to(self.device)), wanted_BD)
        norm = self.descend(self.encoder, missed, self.optimizers)
        return self.read({"missed": missed, "gradient_norm": norm})

    @torch.no_grad()
    def validate(self) -> Mapping[str, float]:
        """How much is missed of where voices should be, of their distance from the mean of all speakers."""
        held_out = range(self._num_trained_on, len(self._heard))
        found = {"altered": self._missed([self._heard[number] for number in held_out])}
        for part, (mels, directions_NV) in self._validation.items():
            found[part] = self._missed(list(zip(mels, directions_NV, strict=True)))
        return found

    def _missed(self, voices: list[tuple[Tensor, Tensor]]) -> float:
        embeddings_ND = torch.stack([self.encoder(mel_FM.float()[None].to(self.device))[0] for mel_FM, _ in voices])
        return float(self.space.missed(embeddings_ND, self.space.place(torch.stack([one for _, one in voices]))))

    def _open_space(self, corpus: Corpus, verifier: SpeakerVerifier, space_of: Path | None) -> EmbeddingSpace:
        """Where the speakers of the corpus are; kept with the run, because the encoder will move."""
        path = self.folder / _SPACE_FILE
        if not path.is_file() and space_of is not None:
            shutil.copyfile(space_of / _SPACE_FILE, path)
        if not path.is_file():
            self.report("asking the verifier where the speakers of the corpus are")
            embeddings_ND, _, directions_NV = _voices(corpus, self.encoder, verifier, self.report)
            if len(embeddings_ND) < 2:
                raise PretrainError("Voices are placed between speakers, so the corpus needs two speakers or more.")
            space = EmbeddingSpace.fit(directions_NV, embeddings_ND, ridge=self.job.ridge, min_gain=self.job.min_gain)
            space.save(path)
        return EmbeddingSpace.load(path, self.device)


def read_encoder(checkpoint: Path) -> SpeakerEncoder:
    """The speaker encoder of a checkpoint, float32.

    Raises:
        PretrainError: it has none.
    """
    config = read_config(checkpoint)
    if config.tts_model_type != "base":
        raise PretrainError(f"{checkpoint} has no speaker encoder. Start from a Base checkpoint.")
    encoder = SpeakerEncoder(config.speaker_encoder)
    read_checkpoint(checkpoint, {WEIGHTS_PREFIX: encoder})
    return encoder.float()


@torch.no_grad()
def _voices(
    corpus: Corpus,
    encoder: SpeakerEncoder,
    verifier: SpeakerVerifier,
    report: Callable[[str], None] = lambda line: None,
) -> tuple[Tensor, list[Tensor], Tensor]:
    """Each speaker's embedding (N, D), spectrum, and direction (N, V)."""
    embeddings: list[Tensor] = []
    mels, directions = [], []
    by_speaker = corpus.by_speaker()
    for numbers in by_speaker.values():
        if len(embeddings) % _REPORT_EVERY == 0:
            report(f"{len(embeddings):,} of {len(by_speaker):,} speakers")
        speech = np.concatenate([corpus.utterance(number).audio for number in numbers[:_NUM_KNOWN_BY]])
        samples = speech.astype(np.float32) / np.float32(FULL_SCALE)
        mels.append(hear(samples, encoder.config))
        embeddings.append(encoder(mels[-1][None])[0])
        directions.append(torch.from_numpy(verifier.embed(samples)))
    return torch.stack(embeddings), mels, torch.stack(directions)
