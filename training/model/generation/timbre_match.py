# Shape letters: F codec frame, Q codebook, R acoustic codebook (all but the first), D talker width, E entry's width.
"""Moves the sound of takes to where the cloned recording's is.

A talker that has learnt from few voices speaks a new one like the nearest of those it knows, even where it continues
the voice's own frames. The error in timbre is found without speaking: the code predictor draws the acoustic codes of
the recording's frames anew, each with its own codebook 0, and these are compared with the recorded ones. A frame is
a point in the space of the acoustic codebooks, the sum of its entries. Drawn and recorded points are taken for two
normal distributions, and optimal transport from one to the other moves every frame as little as it can. Content stays,
since codebook 0 is left alone. The talker reads its frames as they were drawn, since that is what it has learnt from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.model.codec.quantizer import CodeVectors
from training.model.generation.residual_decoder import ResidualDecoder
from training.model.generation.sampling import DrawSettings, draw
from training.model.network.talker_input import concatenate, frame_positions
from training.model.normal_transport import transport
from training.model.prompt.prompt import PromptHead, x_vector_prompt
from training.model.voice_model import VoiceModel

_NUM_DRAWS = 2
"""Of every frame. The recording has each only once, so more would not make the match surer."""
MAX_MATCHED_SECONDS = 20.0
"""Of a recording: nearly every sound occurs in it."""
_MIN_FRAMES = 12
_MAX_TEXT_TOKENS = 1000
"""Longer texts are not what is said in so short a time, and would take memory with the square of their length."""
_PRIOR_FRAMES = 15
"""A recording is believed as if the talker's own frames had added so many: short ones change the spread little."""
_PRIOR_FRAMES_OF_MEAN = 2
_VARIANCE_FLOOR = 1e-3
"""Of the mean variance of the points' numbers."""
_SEED = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class TimbreMatch:
    """Moves points in the space of a codec's acoustic codebooks: matrix @ point + offset.

    Attributes:
        matrix_EE: (E, E) float32.
        offset_E: (E,) float32.
    """

    matrix_EE: Tensor
    offset_E: Tensor

    def fits(self, model: VoiceModel) -> bool:
        """Whether it can be one of this model's, in size and values."""
        if not model.matches_timbre:
            return False
        width = model.acoustic_vectors.width
        has_size = self.matrix_EE.shape == (width, width) and self.offset_E.shape == (width,)
        return has_size and bool(self.matrix_EE.isfinite().all() and self.offset_E.isfinite().all())

    def moved(self, codes_Q: Tensor, vectors: CodeVectors) -> Tensor:
        """A frame (Q,) with its acoustic codes moved, and codebook 0 as it was.

        One frame in a call: what it becomes must not depend on how many others are moved with it.
        """
        point_1E = vectors.vectors(codes_Q[None, 1:])
        acoustic_1R = vectors.codes(torch.addmm(self.offset_E, point_1E, self.matrix_EE.t()))
        return torch.cat((codes_Q[:1], acoustic_1R[0]))

    def to(self, device: torch.device) -> TimbreMatch:
        """The same on another device."""
        return replace(self, matrix_EE=self.matrix_EE.to(device), offset_E=self.offset_E.to(device))


@torch.inference_mode()
def match_timbre(model: VoiceModel, speaker_D: Tensor, codes_FQ: Tensor, text: str = "") -> TimbreMatch | None:
    """Find what moves a model's takes of a voice to the timbre of its recording; deterministic.

    Args:
        model: with a talker that was not emptied for decoding.
        speaker_D: the voice's speaker embedding.
        codes_FQ: of the recording, or the beginning of it.
        text: what it says, if that is known; the match is somewhat better then.

    Returns:
        None for a model that needs no matching, and for less than a second of speech.
    """
    codes_FQ = codes_FQ[: round(MAX_MATCHED_SECONDS * model.speech_tokenizer.config.frame_rate_hz)]
    if not model.matches_timbre or len(codes_FQ) < _MIN_FRAMES:
        return None
    states_FD = _states_before(model, speaker_D, codes_FQ, text)
    vectors = model.acoustic_vectors
    drawn = [vectors.vectors(codes_FR) for codes_FR in _drawn_anew(model, states_FD, codes_FQ)]
    return _transport(torch.cat(drawn).double().cpu().numpy(), vectors.vectors(codes_FQ[:, 1:]).double().cpu().numpy())


def _states_before(model: VoiceModel, speaker_D: Tensor, codes_FQ: Tensor, text: str) -> Tensor:
    """The talker's state before each of the recording's frames, (F, D)."""
    config, tokenizer = model.config, model.text_tokenizer
    text_ids: Sequence[int] = tokenizer.encode_text(text) if text.strip() else ()
    if not 0 < len(text_ids) <= _MAX_TEXT_TOKENS:
        text_ids = [config.tts_pad_token_id]
    prompt = x_vector_prompt(config, PromptHead(role_ids=tokenizer.role_ids), text_ids)
    frames = frame_positions(codes_FQ, [config.tts_pad_token_id] * len(codes_FQ))
    inputs = concatenate([prompt.inputs, frames]).batched().to(model.device)
    x_BTD = model.talker.embed_input(inputs, speaker_D.to(model.device).unsqueeze(0))
    hidden_BTD = model.talker(x_BTD.to(model.talker.codec_head.weight.dtype))
    states_FD: Tensor = hidden_BTD[0, len(prompt.inputs) - 1 : -1]
    return states_FD


def _drawn_anew(model: VoiceModel, states_FD: Tensor, codes_FQ: Tensor) -> list[Tensor]:
    """The acoustic codes (F, R) that the code predictor draws for the recording's frames, given their codebook 0."""
    num_frames, num_codebooks = codes_FQ.shape
    device, vocabulary = model.device, model.config.code_predictor.vocab_size
    decoder = ResidualDecoder(model.talker, model.config, precision=model.precision, num_rows=num_frames)
    settings = DrawSettings(num_frames, vocabulary, device)
    for row in range(num_frames):
        settings.set_slot(row, model.default_sampling.of_residual_codebooks)
    generator = torch.Generator().manual_seed(_SEED)
    drawn = []
    for _ in range(_NUM_DRAWS):
        uniform_FQ = torch.rand(num_frames, num_codebooks, generator=generator).to(device)

        def draw_code(logits_FV: Tensor, codebook: int, uniform_FQ: Tensor = uniform_FQ) -> Tensor:
            return draw(logits_FV, uniform_FQ[:, codebook], settings)

        new_FQ, _ = decoder.decode(states_FD, codes_FQ[:, 0].to(device), draw_code)
        drawn.append(new_FQ[:, 1:])
    return drawn


def _transport(own_FE: NDArray[np.float64], wanted_FE: NDArray[np.float64]) -> TimbreMatch:
    """What moves the first points to where the second are, as far as so few of these can be trusted."""
    num_own, num_wanted = len(own_FE), len(wanted_FE)
    own_E = own_FE.mean(axis=0)
    wanted_E = _mixed(wanted_FE.mean(axis=0), num_wanted, own_E, _PRIOR_FRAMES_OF_MEAN)
    own_EE, wanted_EE = np.cov(own_FE.T), np.cov(wanted_FE.T)
    # Where codebooks have no entries, nothing is to be moved, and no error of rounding made larger.
    floor_EE = np.eye(len(own_EE)) * _VARIANCE_FLOOR * np.trace(own_EE) / len(own_EE)
    matrix_EE = transport(
        _mixed(own_EE, num_own, wanted_EE, _PRIOR_FRAMES) + floor_EE,
        _mixed(wanted_EE, num_wanted, own_EE, _PRIOR_FRAMES) + floor_EE,
    )
    return TimbreMatch(
        matrix_EE=torch.from_numpy(matrix_EE).float(), offset_E=torch.from_numpy(wanted_E - matrix_EE @ own_E).float()
    )


def _mixed(
    counted: NDArray[np.float64], number: int, prior: NDArray[np.float64], prior_number: int
) -> NDArray[np.float64]:
    """The mean of two estimates, each with the weight of so many frames."""
    mean: NDArray[np.float64] = (number * counted + prior_number * prior) / (number + prior_number)
    return mean
