"""What the compare tab says: takes side by side, votes counted, and what they mean. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from backend.audio.quality import peak_envelope
from backend.comparisons.comparison import ComparedTake, Comparison, Letter, Verdict
from backend.comparisons.contenders import Contender
from backend.comparisons.making import ComparisonProgress
from backend.comparisons.preference import Tally
from backend.evaluation.scores import TakeScores
from ui.html.base import ENDINGS, NOTHING, file_url, says
from ui.html.spectrogram import spectrogram_html
from ui.html.waveform import waveform_svg

LOUDNESS_NOTE = (
    "All takes were brought to the same loudness, so that the louder one does not win. Text and seed are the same."
)
BLIND_NOTE = "Which is which, and the scores, are shown after your vote."

VERDICTS: dict[Verdict, str] = {
    "A": "A is better",
    "B": "B is better",
    "C": "C is better",
    "same": "No difference",
    "bad": "None is good",
}

WHAT_HELPS = (
    "More minutes of clean recordings: ten are a good start, thirty are better",
    "Transcripts that are right word for word: listen to the doubtful clips on the Dataset tab",
    "An earlier checkpoint: too many steps make a voice hurry or mumble",
    "One room and one microphone for all recordings",
)

_NUM_BARS = 120


@dataclass(frozen=True, kw_only=True, eq=False)
class HeardTake:
    """The sound of a take, for its pictures and its player."""

    path: Path
    samples: NDArray[np.float32]
    sample_rate: int


def progress_line(progress: ComparisonProgress) -> str:
    """Where the making of a comparison stands."""
    position = f"Voice {progress.number} of {progress.num_sides}"
    if progress.doing == "speaking":
        return says("", f"{position}: speaking, {progress.seconds_spoken:.1f} s so far.")
    if progress.doing == "measuring":
        return says("", "All have spoken; measuring the takes …")
    return says("", f"{position}: getting ready …")


def comparison_html(comparison: Comparison, heard: Mapping[Letter, HeardTake]) -> str:
    """The takes side by side; who is who only where the listener may know."""
    note = LOUDNESS_NOTE if comparison.is_revealed else f"{LOUDNESS_NOTE} {BLIND_NOTE}"
    cards = "".join(
        _take_card(take, heard[take.letter], comparison) for take in comparison.takes if take.letter in heard
    )
    return (
        f'<blockquote class="said">{escape(comparison.text)}</blockquote><p class="note">{note} '
        f'Seed {comparison.seed}.</p><ul class="sides">{cards}</ul>'
    )


def vote_line(comparison: Comparison) -> str:
    """What was voted, and for whom."""
    if comparison.verdict is None:
        return NOTHING
    winner = comparison.winner
    if winner is None:
        return says("", f"<strong>Your vote: {VERDICTS[comparison.verdict].lower()}.</strong>")
    return says("good", f"<strong>Your vote: {winner.letter}, {escape(winner.side.label)}.</strong>")


def tally_html(tallies: Sequence[Tally], sides: Mapping[str, Contender]) -> str:
    """All votes so far, pair by pair, with what they allow to say."""
    blocks = [_tally_block(tally, sides) for tally in tallies if tally.num_votes]
    return "".join(blocks) or NOTHING


def advice_html(tallies: Sequence[Tally], sides: Mapping[str, Contender]) -> str:
    """What would help where zero-shot wins over a fine-tune; nothing elsewhere."""
    for tally in tallies:
        leader = sides.get(tally.leader or "")
        other = sides.get(tally.second if tally.leader == tally.first else tally.first)
        if leader is None or other is None or leader.is_fine_tuned or not other.is_fine_tuned:
            continue
        sure = "" if tally.is_clear else " so far; more votes would tell whether that is luck"
        helps = "".join(f"<li>{escape(line)}</li>" for line in WHAT_HELPS)
        return says(
            "mixed",
            f"<strong>Zero-shot wins over the fine-tune{sure}.</strong> Keep the zero-shot voice, "
            "or try again. What would help:",
            more=f"<ul>{helps}</ul>",
        )
    return NOTHING


def _take_card(take: ComparedTake, heard: HeardTake, comparison: Comparison) -> str:
    title = f"Take {take.letter}"
    won = comparison.verdict == take.letter
    waveform = waveform_svg(peak_envelope(heard.samples, _NUM_BARS), f"Waveform of take {take.letter}")
    spectrogram = spectrogram_html(heard.samples, heard.sample_rate, f"Spectrogram of take {take.letter}, 0 to 8 kHz")
    details = ""
    if comparison.is_revealed:
        details = f'<p class="who">{escape(take.side.label)}</p>{_scores(take)}'
    return (
        f'<li class="side{" won" if won else ""}"><h3>{title}{" (your choice)" if won else ""}</h3>'
        f'<audio controls preload="auto" src="{file_url(heard.path)}" aria-label="{title}, {take.seconds:.1f} seconds">'
        f"</audio>{waveform}{spectrogram}{details}</li>"
    )


def _scores(take: ComparedTake) -> str:
    rows = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in _score_rows(take.scores))
    return (
        f'<dl class="scores">{rows}</dl><div class="facts">{take.seconds:.1f} s, {ENDINGS[take.finish_reason]}. '
        f"Loudness changed by {take.gain_db:+.1f} dB.</div>"
    )


def _score_rows(scores: TakeScores) -> list[tuple[str, str]]:
    rows = [("Length against expected", f"{scores.duration_ratio:.2f}")]
    if scores.verified_similarity is not None:
        rows.append(("Likeness, by an independent ear", f"{scores.verified_similarity:.2f}"))
    if scores.speaker_similarity is not None:
        rows.append(("Likeness, by the model's own ear (biased)", f"{scores.speaker_similarity:.2f}"))
    if scores.word_error is not None:
        rows.append(("Words misheard", f"{scores.word_error:.0%}"))
    if scores.clipped_share > 0:
        rows.append(("Cut off at full scale", f"{scores.clipped_share:.1%}"))
    return rows


def _tally_block(tally: Tally, sides: Mapping[str, Contender]) -> str:
    first, second = (
        escape(sides[key].label) if key in sides else "a voice that is gone" for key in (tally.first, tally.second)
    )
    low, high = tally.interval
    counts = (
        f"{tally.first_wins} for the first, {tally.second_wins} for the second, {tally.num_same} saw no difference or "
        f"preferred another, {tally.num_bad} found none good; {tally.num_blind} of {tally.num_votes} were blind."
    )
    if tally.share is None:
        meaning = "No vote preferred one of the two yet."
    else:
        meaning = (
            f"The first was preferred in {tally.share:.0%} of {tally.num_decided} decided "
            f"{'vote' if tally.num_decided == 1 else 'votes'}; with 95 % confidence the true share lies between "
            f"{low:.0%} and {high:.0%}. "
        )
        meaning += "That is more than luck." if tally.is_clear else "That can still be luck: vote on more sentences."
    picture = _interval_svg(tally) if tally.share is not None else ""
    return (
        f'<div class="tally"><p><strong>{first}</strong> against <strong>{second}</strong></p>{picture}'
        f"<p>{counts} {meaning}</p></div>"
    )


def _interval_svg(tally: Tally) -> str:
    low, high = tally.interval
    share = tally.share or 0.0
    label = f"Preferred share {share:.0%}, between {low:.0%} and {high:.0%}"
    return (
        f'<svg class="interval" role="img" aria-label="{label}" viewBox="0 0 100 10" preserveAspectRatio="none">'
        '<path class="track" d="M0 4.5h100v1h-100z"/><path class="half" d="M49.75 1h0.5v8h-0.5z"/>'
        f'<path class="range" d="M{low * 100:.1f} 3h{(high - low) * 100:.1f}v4h-{(high - low) * 100:.1f}z"/>'
        f'<path class="share" d="M{share * 99:.1f} 1h1v8h-1z"/></svg>'
    )
