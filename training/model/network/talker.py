# Shape letters: B batch, T step, Q codebook, D talker width, V codec vocabulary.
"""The talker: reads text and frames as one sequence of summed embeddings, predicts codebook 0 of the next frame."""

from __future__ import annotations

from torch import Tensor, nn

from training.model.activations import build_activation
from training.model.config import CodePredictorConfig, TalkerConfig
from training.model.network.code_predictor import CodePredictor
from training.model.network.layers import Transformer
from training.model.network.packing import Packing
from training.model.network.talker_input import TalkerInput


class TextProjection(nn.Module):
    """Two-layer map from the width of the text embeddings to the talker's; biased, so masks go after it."""

    def __init__(self, config: TalkerConfig) -> None:
        super().__init__()
        self.linear_fc1 = nn.Linear(config.text_hidden_size, config.text_hidden_size)
        self.linear_fc2 = nn.Linear(config.text_hidden_size, config.hidden_size)
        self.act = build_activation(config.hidden_act)

    def forward(self, text: Tensor) -> Tensor:
        """(..., text width) to (..., D)."""
        out: Tensor = self.linear_fc2(self.act(self.linear_fc1(text)))
        return out


class TalkerBackbone(Transformer):
    """Decoder layers with the talker's two vocabularies: text, and codec ids with control and speaker rows."""

    def __init__(self, config: TalkerConfig) -> None:
        super().__init__(config)
        self.codec_embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        self.text_embedding = nn.Embedding(config.text_vocab_size, config.text_hidden_size)


class Talker(nn.Module):
    """Talker and code predictor, as one tree of parameters named like the public checkpoints."""

    def __init__(self, config: TalkerConfig, predictor_config: CodePredictorConfig) -> None:
        super().__init__()
        self.config = config
        self.model = TalkerBackbone(config)
        self.text_projection = TextProjection(config)
        self.codec_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.code_predictor = CodePredictor(predictor_config, config.hidden_size)

    def embed_text(self, text_ids: Tensor) -> Tensor:
        """Projected text embeddings, (...) to (..., D)."""
        out: Tensor = self.text_projection(self.model.text_embedding(text_ids))
        return out

    def embed_input(self, inputs: TalkerInput, speaker: Tensor | None) -> Tensor:
        """Input embeddings of a laid-out sequence, for prompts and for training alike.

        Every position is the sum of what it holds: a text token, a codec id, the residual codes of a frame, the
        speaker embedding. Masking comes after the biased text projection, so that a position without text is zero.

        Args:
            inputs: ids and masks with a leading batch axis.
            speaker: speaker embedding per sequence, (B, D), or per position, (B, T, D); None if no position needs one.

        Returns:
            (B, T, D).
        """
        has_text = (inputs.text_ids >= 0).unsqueeze(-1)
        has_codec = (inputs.codec_ids >= 0).unsqueeze(-1)
        embedded: Tensor = self.embed_text(inputs.text_ids.clamp(min=0)) * has_text
        embedded = embedded + self.model.codec_embedding(inputs.codec_ids.clamp(min=0)) * has_codec
        codes = inputs.with_first_codebook().clamp(min=0)
        embedded = embedded + self.code_predictor.sum_residual(codes) * inputs.is_frame.unsqueeze(-1)
        if speaker is not None:
            speaker_BTD = speaker.unsqueeze(1) if speaker.dim() == 2 else speaker
            embedded = embedded + speaker_BTD.to(embedded.dtype) * inputs.is_speaker.unsqueeze(-1)
        return embedded

    def forward(
        self, x_BTD: Tensor, positions_BT: Tensor | None = None, mask: Tensor | Packing | None = None
    ) -> Tensor:
        """Hidden states (B, T, D) after the final norm; see `Transformer.forward`."""
        out: Tensor = self.model(x_BTD, positions_BT, mask)
        return out
