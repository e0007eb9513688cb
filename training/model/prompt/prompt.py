# Shape letters: T step, F codec frame, Q codebook.
r"""Prompt layouts: what the talker is prefilled with, position by position.

Every layout opens with the same head. `tag` stands for the language tag, which is
`nothink, think_bos, think_eos` for automatic language and `think, think_bos, LANGUAGE, think_eos` for a
named one:

| positions | text channel                    | codec channel            |
|-----------|---------------------------------|--------------------------|
| 3         | `<|im_start|>`, assistant, `\n` | nothing                  |
| 3 or 4    | tts_pad                         | tag                      |
| 1 or none | tts_pad                         | speaker                  |
| 1         | tts_bos                         | codec_pad                |

and continues as the layout's own table shows. With `streaming_text=True` the talker does not read the whole text
first: each frame is accompanied by one text token, and tokens beyond the prompt follow during generation
(`Prompt.trailing_text_ids`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from training.model.config import ModelConfig
from training.model.errors import PromptError
from training.model.network.talker_input import (
    NOTHING,
    TalkerInput,
    concatenate,
    frame_positions,
    id_positions,
    speaker_position,
)
from training.model.prompt.language import AUTO_LANGUAGE, check_language


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """A laid-out prompt.

    Attributes:
        inputs: what is prefilled; the hidden state of its last position predicts the first frame.
        trailing_text_ids: text tokens still to come, one per generated frame, tts_eos last; empty when the
            whole text is in `inputs`.
    """

    inputs: TalkerInput
    trailing_text_ids: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PromptHead:
    r"""What all layouts share: the role tokens, the language and who speaks.

    Attributes:
        role_ids: the three tokens of `<|im_start|>assistant\n`.
        language: `auto` or one of `ModelConfig.languages`, in any case.
        speaker: name in the checkpoint's `spk_id`; None for a speaker embedding.
        has_speaker: false for voices described by an instruction alone.
        instruction_ids: tokens of the instruction turn, put before everything else; may be empty.
    """

    role_ids: Sequence[int]
    language: str = AUTO_LANGUAGE
    speaker: str | None = None
    has_speaker: bool = True
    instruction_ids: Sequence[int] = ()


def x_vector_prompt(
    config: ModelConfig, head: PromptHead, text_ids: Sequence[int], *, streaming_text: bool = False
) -> Prompt:
    """Clone from the speaker embedding alone.

    | positions       | text channel  | codec channel |
    |-----------------|---------------|---------------|
    | head            |               |               |
    | one per token   | text, tts_eos | codec_pad     |
    | 1               | tts_pad       | codec_bos     |

    With `streaming_text` the head is followed by one position, the first text token on codec_bos, and the rest
    of the text and tts_eos trail.

    Raises:
        PromptError: no text, or a language the checkpoint does not have.
    """
    _require_text(text_ids)
    talker, num_codebooks = config.talker, config.talker.num_code_groups
    text = [*text_ids, config.tts_eos_token_id]
    if streaming_text:
        first = id_positions(text[:1], [talker.codec_bos_id], num_codebooks)
        return Prompt(inputs=concatenate([*_head_inputs(config, head), first]), trailing_text_ids=tuple(text[1:]))
    body = id_positions(text, [talker.codec_pad_id] * len(text), num_codebooks)
    start = id_positions([config.tts_pad_token_id], [talker.codec_bos_id], num_codebooks)
    return Prompt(inputs=concatenate([*_head_inputs(config, head), body, start]))


def unconditional_prompt(config: ModelConfig, role_ids: Sequence[int]) -> Prompt:
    """Neither a text nor a speaker: what any speech is like, for classifier-free guidance (Ho & Salimans 2022).

    | positions | text channel | codec channel |
    |-----------|--------------|---------------|
    | head      |              |               |
    | 1         | tts_eos      | codec_pad     |
    | 1         | tts_pad      | codec_bos     |
    """
    talker = config.talker
    text, codec = [config.tts_eos_token_id, config.tts_pad_token_id], [talker.codec_pad_id, talker.codec_bos_id]
    head = _head_inputs(config, PromptHead(role_ids=role_ids, has_speaker=False))
    return Prompt(inputs=concatenate([*head, id_positions(text, codec, talker.num_code_groups)]))


def in_context_prompt(
    config: ModelConfig,
    head: PromptHead,
    text_ids: Sequence[int],
    *,
    reference_text_ids: Sequence[int],
    reference_codes_FQ: Tensor,
    streaming_text: bool = False,
) -> Prompt:
    """Clone by continuing a recording: its text and codes stand before the text to be spoken.

    | positions      | text channel                  | codec channel     |
    |----------------|-------------------------------|-------------------|
    | head           |                               |                   |
    | one per token  | reference text, text, tts_eos | codec_pad         |
    | 1              | tts_pad                       | codec_bos         |
    | one per frame  | tts_pad                       | reference frames  |

    With `streaming_text` both run in parallel instead: codec_bos and the reference frames in one channel, reference
    text, text and tts_eos in the other. A shorter text is padded with tts_pad; the end of a longer one trails.

    Args:
        config: the checkpoint's configuration.
        head: who speaks, and in which language.
        text_ids: what is to be spoken.
        reference_text_ids: what the reference says.
        reference_codes_FQ: codes of the reference, (F, Q).
        streaming_text: run the text beside the frames.

    Raises:
        PromptError: no text, no reference text, no reference frames, or an unknown language.
    """
    _require_text(text_ids)
    if not reference_text_ids:
        raise PromptError("In-context cloning needs the words of the reference. Add its transcript.")
    num_frames, num_codebooks = reference_codes_FQ.shape
    if num_frames == 0:
        raise PromptError("The reference is empty. Use a recording of at least one second.")
    talker, pad = config.talker, config.tts_pad_token_id
    text = [*reference_text_ids, *text_ids, config.tts_eos_token_id]
    if streaming_text:
        beside, trailing = text[: num_frames + 1], text[num_frames + 1 :]
        beside = beside + [pad] * (num_frames + 1 - len(beside))
        body = [
            id_positions(beside[:1], [talker.codec_bos_id], num_codebooks),
            frame_positions(reference_codes_FQ, beside[1:]),
        ]
    else:
        trailing = []
        body = [
            id_positions(text, [talker.codec_pad_id] * len(text), num_codebooks),
            id_positions([pad], [talker.codec_bos_id], num_codebooks),
            frame_positions(reference_codes_FQ, [pad] * num_frames),
        ]
    return Prompt(
        inputs=concatenate([*_head_inputs(config, head), *body]),
        trailing_text_ids=tuple(trailing),
    )


def named_speaker_prompt(
    config: ModelConfig, head: PromptHead, text_ids: Sequence[int], *, streaming_text: bool = False
) -> Prompt:
    """Speak as one of a `custom_voice` checkpoint's own speakers.

    The layout of `x_vector_prompt`, but the speaker's position holds the speaker's id in the codec vocabulary,
    where fine-tuning stored the embedding:

    | positions | text channel | codec channel   |
    |-----------|--------------|-----------------|
    | 1         | tts_pad      | spk_id[speaker] |

    A speaker of a dialect selects that dialect when the language is `auto` or `chinese`.

    Raises:
        PromptError: no text, a speaker or a language the checkpoint does not have.
    """
    if head.speaker is None:
        known = ", ".join(config.talker.spk_id) or "none"
        raise PromptError(f"Name one of the checkpoint's speakers: {known}.")
    return x_vector_prompt(config, head, text_ids, streaming_text=streaming_text)


def instruction_prefix(config: ModelConfig, instruction_ids: Sequence[int]) -> TalkerInput:
    r"""The instruction turn that may stand before any layout.

    | positions     | text channel                                       | codec channel |
    |---------------|----------------------------------------------------|---------------|
    | one per token | `<|im_start|>user\n`, instruction, `<|im_end|>\n` | nothing       |
    """
    return id_positions(list(instruction_ids), [NOTHING] * len(instruction_ids), config.talker.num_code_groups)


def language_tag(config: ModelConfig, language: str, speaker: str | None = None) -> list[int]:
    """Codec ids that name the language, or leave it to the model.

    Raises:
        PromptError: a language the checkpoint does not have.
    """
    talker, name = config.talker, language.lower()
    language_id = None
    if name != AUTO_LANGUAGE:
        check_language(config, language)
        language_id = talker.codec_language_id[name]
    dialect = talker.spk_is_dialect.get(speaker.lower()) if speaker is not None else None
    if dialect and name in (AUTO_LANGUAGE, "chinese"):
        language_id = talker.codec_language_id[dialect]
    if language_id is None:
        return [talker.codec_nothink_id, talker.codec_think_bos_id, talker.codec_think_eos_id]
    return [talker.codec_think_id, talker.codec_think_bos_id, language_id, talker.codec_think_eos_id]


def _head_inputs(config: ModelConfig, head: PromptHead) -> list[TalkerInput]:
    talker, pad, num_codebooks = config.talker, config.tts_pad_token_id, config.talker.num_code_groups
    tag = language_tag(config, head.language, head.speaker)
    parts = [
        instruction_prefix(config, head.instruction_ids),
        id_positions(list(head.role_ids), [NOTHING] * len(head.role_ids), num_codebooks),
        id_positions([pad] * len(tag), tag, num_codebooks),
    ]
    if head.speaker is not None:
        parts.append(id_positions([pad], [_speaker_id(config, head.speaker)], num_codebooks))
    elif head.has_speaker:
        parts.append(speaker_position(pad, num_codebooks))
    parts.append(id_positions([config.tts_bos_token_id], [talker.codec_pad_id], num_codebooks))
    return parts


def _speaker_id(config: ModelConfig, speaker: str) -> int:
    # Upstream looks speakers up in lower case, so exported names are stored that way.
    speaker_id = config.talker.spk_id.get(speaker.lower())
    if speaker_id is None:
        known = ", ".join(config.talker.spk_id) or "none: it is a base model that clones from a recording"
        raise PromptError(f"This model has no speaker named {speaker!r}. It has: {known}.")
    return int(speaker_id)


def _require_text(text_ids: Sequence[int]) -> None:
    if not text_ids:
        raise PromptError("There is no text to speak. Write at least one word.")
