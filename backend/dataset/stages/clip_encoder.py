"""Codes and speaker embeddings of clips: the encoders of a model without its talker, and a speaker verifier."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from backend.audio.canonical import CANONICAL_HZ
from backend.audio.resample import resample
from backend.dataset.clips.encoded_clip import EncodedClip
from training.model.checkpoint.names import SPEECH_TOKENIZER_FOLDER
from training.model.checkpoint.reading import find_weights, load_weights, read_config, read_speech_tokenizer_config
from training.model.codec.speech_tokenizer import SpeechTokenizer, tokenizer_fingerprint
from training.model.device import choose_device
from training.model.errors import ModelError
from training.model.network.mel import log_mel
from training.model.network.speaker_encoder import SpeakerEncoder
from training.model.speaker_verifier import GE2EVerifier, SpeakerVerifier, load_verifier

# A GPU encodes that much at once; one clip at a time is as fast on a CPU, and its codes depend on nothing else.
_CUDA_BATCH_SECONDS = 120.0
# The shortest input of the networks; shorter clips, which are never trained on, are padded with silence.
_MIN_SECONDS = 0.1


@dataclass(frozen=True, kw_only=True, eq=False)
class ClipEncoder:
    """Speech tokenizer and speaker encoder of one checkpoint.

    Attributes:
        fingerprint: of the codebooks; goes into the dataset's card.
        identity: of all weights that decide about codes and the model's own embeddings; what stored results depend on.
        verifier: tells whether all clips are by one speaker; None where its weights are missing.
    """

    speech_tokenizer: SpeechTokenizer
    speaker_encoder: SpeakerEncoder
    speaker_hz: int
    num_mels: int
    device: torch.device
    fingerprint: str
    identity: str
    verifier: SpeakerVerifier | None

    @classmethod
    def load(cls, folder: Path, device: str = "auto", *, verifier_weights: Path | None = None) -> ClipEncoder:
        """Load the encoders of a checkpoint folder, and the verifier that is part of the program, or of other weights.

        Raises:
            EncoreError: it is not a checkpoint, or has no speaker encoder.
        """
        chosen = choose_device(device)
        config = read_config(folder)
        if not config.has_speaker_encoder:
            raise ModelError(
                f"{folder} is a {config.tts_model_type} checkpoint without a speaker encoder, so it cannot be "
                "fine-tuned to a voice. Choose a Base checkpoint."
            )
        with torch.device("meta"):
            speaker_encoder = SpeakerEncoder(config.speaker_encoder)
            speech_tokenizer = SpeechTokenizer(read_speech_tokenizer_config(folder))
        tokenizer_files = find_weights(folder / SPEECH_TOKENIZER_FOLDER)
        load_weights(speaker_encoder, find_weights(folder), "speaker_encoder.", dtype=torch.float32, device=chosen)
        load_weights(speech_tokenizer, tokenizer_files, "", dtype=torch.float32, device=chosen)
        return cls(
            speech_tokenizer=speech_tokenizer.eval(),
            speaker_encoder=speaker_encoder.eval(),
            speaker_hz=config.speaker_encoder.sample_rate,
            num_mels=config.speaker_encoder.mel_dim,
            device=chosen,
            fingerprint=tokenizer_fingerprint(speech_tokenizer),
            identity=_identity(speech_tokenizer, speaker_encoder, config.speaker_encoder.sample_rate),
            verifier=load_verifier() if verifier_weights is None else GE2EVerifier(verifier_weights),
        )

    @property
    def num_codebooks(self) -> int:
        """Codes per frame."""
        return self.speech_tokenizer.config.encoder_valid_num_quantizers

    @torch.inference_mode()
    def encode(self, clips: Sequence[NDArray[np.float32]]) -> list[EncodedClip]:
        """Codes and embedding of each clip (samples,) at CANONICAL_HZ; batched by duration where that is faster."""
        encoded: dict[int, EncodedClip] = {}
        clips = [_filled_up(clip) for clip in clips]
        for batch in self._batches([len(clip) for clip in clips]):
            waveforms = [self._waveform(clips[index], self._tokenizer_hz) for index in batch]
            for index, codes in zip(batch, self.speech_tokenizer.encode(waveforms), strict=True):
                encoded[index] = EncodedClip(
                    codes=codes.to("cpu", torch.int16).numpy(),
                    speaker_embedding=self._embed(clips[index]),
                    voiceprint=self._identify(clips[index]),
                )
        return [encoded[index] for index in range(len(clips))]

    @property
    def _tokenizer_hz(self) -> int:
        return self.speech_tokenizer.config.input_sample_rate

    def _embed(self, clip: NDArray[np.float32]) -> NDArray[np.float32]:
        mel = log_mel(self._waveform(clip, self.speaker_hz).unsqueeze(0), self.speaker_hz, self.num_mels)
        embedding: NDArray[np.float32] = self.speaker_encoder(mel)[0].float().cpu().numpy()
        return embedding

    def _identify(self, clip: NDArray[np.float32]) -> NDArray[np.float32] | None:
        return None if self.verifier is None else self.verifier.embed(clip, sample_rate=CANONICAL_HZ)

    def _waveform(self, clip: NDArray[np.float32], rate: int) -> torch.Tensor:
        resampled = resample(clip, CANONICAL_HZ, rate)
        return torch.from_numpy(np.ascontiguousarray(resampled, dtype=np.float32)).to(self.device)

    def _batches(self, num_samples: Sequence[int]) -> Iterator[list[int]]:
        """Indices of clips to encode together: of similar length, since all cost as much as the longest."""
        by_length = sorted(range(len(num_samples)), key=lambda index: num_samples[index])
        if self.device.type != "cuda":
            yield from ([index] for index in by_length)
            return
        max_samples = _CUDA_BATCH_SECONDS * CANONICAL_HZ
        batch: list[int] = []
        for index in by_length:
            if batch and num_samples[index] * (len(batch) + 1) > max_samples:
                yield batch
                batch = []
            batch.append(index)
        if batch:
            yield batch


def _filled_up(clip: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.pad(clip, (0, max(0, round(_MIN_SECONDS * CANONICAL_HZ) - len(clip))))


def _identity(tokenizer: SpeechTokenizer, speaker_encoder: SpeakerEncoder, speaker_hz: int) -> str:
    """Hash of every weight of the encoders, without the decoder."""
    hashed = hashlib.sha256(json.dumps([speaker_hz, tokenizer.config.encode_downsample_rate]).encode())
    for module in (tokenizer.encoder, speaker_encoder):
        for name, tensor in sorted(module.state_dict().items()):
            hashed.update(name.encode())
            hashed.update(tensor.detach().to("cpu", torch.float32).contiguous().numpy().tobytes())
    return hashed.hexdigest()[:32]
