"""What the Compare tab says: takes side by side, votes counted, and what they mean. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from backend.audio.quality import peak_envelope
from backend.comparisons.comparison import ComparedTake, Comparison, Letter, Verdict
from backend.comparisons.contenders import Contender
from backend.comparisons.make_comparison import ComparisonProgress
from backend.comparisons.preference import Tally
from backend.evaluation.score_words import describe_likeness
from backend.evaluation.scores import TakeScores
from ui.html.messages import NOTHING, says
from ui.html.spectrogram import spectrogram_html
from ui.html.takes import ENDINGS
from ui.html.templates import html, render
from ui.html.waveform import waveform_svg
from ui.html.words import count_of

ABOUT = (
    "The same text and the same seed by two or three voices, brought to one loudness. Blind, the letters are assigned "
    "at random, and you learn who was who after your vote."
)

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
    "Transcripts that are right word for word: listen to the doubtful clips on the Data tab",
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


def progress_line(progress: ComparisonProgress) -> Markup:
    """How far making a comparison is."""
    position = f"Voice {progress.number} of {progress.num_sides}"
    if progress.doing == "speaking":
        return says("", f"{position}: speaking, {progress.seconds_spoken:.1f} s so far.")
    if progress.doing == "measuring":
        return says("", "All have spoken; measuring the takes …")
    return says("", f"{position}: getting ready …")


def comparison_html(comparison: Comparison, heard: Mapping[Letter, HeardTake]) -> Markup:
    """The takes side by side; who is who only if the listener may know."""
    takes = [_card(take, heard[take.letter], comparison) for take in comparison.takes if take.letter in heard]
    note = LOUDNESS_NOTE if comparison.is_revealed else f"{LOUDNESS_NOTE} {BLIND_NOTE}"
    return render("compare", "comparison", comparison=comparison, note=note, takes=takes)


def vote_line(comparison: Comparison) -> Markup:
    """What was voted, and for which voice."""
    if comparison.verdict is None:
        return NOTHING
    winner = comparison.winner
    if winner is None:
        return says("", html("<strong>Your vote: {}.</strong>", VERDICTS[comparison.verdict].lower()))
    return says("good", html("<strong>Your vote: {}, {}.</strong>", winner.letter, winner.side.label))


def keep_line(preferred: Contender | None, comparison: Comparison) -> Markup:
    """Which voice is kept, where that is not plain from the vote."""
    if preferred is None:
        return says("mixed", "The votes are even so far. Vote on another sentence, then keep a voice.")
    winner = comparison.winner
    if winner is not None and winner.side.key == preferred.key:
        return NOTHING
    return says("", html("In all votes, <strong>{}</strong> is ahead: that is the one to keep.", preferred.label))


def tally_html(tallies: Sequence[Tally], sides: Mapping[str, Contender]) -> Markup:
    """All votes so far, pair by pair, with what they allow to say."""
    return Markup().join(_tally_block(tally, sides) for tally in tallies if tally.num_votes) or NOTHING


def advice_html(tallies: Sequence[Tally], sides: Mapping[str, Contender]) -> Markup:
    """What would help if zero-shot wins over a fine-tune; nothing otherwise."""
    for tally in tallies:
        leader = sides.get(tally.leader or "")
        other = sides.get(tally.second if tally.leader == tally.first else tally.first)
        if leader is None or other is None or leader.is_fine_tuned or not other.is_fine_tuned:
            continue
        sure = "" if tally.is_clear else " so far; more votes would tell whether that is luck"
        text = html(
            "<strong>Zero-shot wins over the fine-tune{}.</strong> Keep the zero-shot voice, or try again. What would "
            "help:",
            sure,
        )
        helps = Markup().join(html("<li>{}</li>", line) for line in WHAT_HELPS)
        return says("mixed", text, more=html("<ul>{}</ul>", helps))
    return NOTHING


def _card(take: ComparedTake, heard: HeardTake, comparison: Comparison) -> dict[str, object]:
    """Of a take, what the template shows."""
    name = f"take {take.letter}"
    return {
        "take": take,
        "path": heard.path,
        "has_won": comparison.verdict == take.letter,
        "waveform": waveform_svg(peak_envelope(heard.samples, _NUM_BARS), f"Waveform of {name}", heard.path),
        "spectrogram": spectrogram_html(heard.samples, heard.sample_rate, f"Spectrogram of {name}, 0 to 8 kHz"),
        "scores": _score_rows(take.scores),
        "ending": ENDINGS[take.finish_reason],
    }


def _score_rows(scores: TakeScores) -> list[tuple[str, str]]:
    rows = [("Length against expected", f"{scores.duration_ratio:.2f}")]
    likeness = describe_likeness(scores)
    if likeness:
        rows.append(("Likeness", likeness))
    if scores.verified_similarity is not None and scores.speaker_similarity is not None:
        rows.append(("Likeness, the model's own opinion (biased)", f"{scores.speaker_similarity:.2f}"))
    heard = [] if scores.word_error is None else [(scores.transcriber, scores.word_error)]
    heard += [(other.listener, other.word_error) for other in scores.also_heard]
    rows += [
        (f"Words misheard by {listener}" if listener else "Words misheard", f"{error:.0%}") for listener, error in heard
    ]
    if scores.clipped_share > 0:
        rows.append(("Cut off at full scale", f"{scores.clipped_share:.1%}"))
    return rows


def _tally_block(tally: Tally, sides: Mapping[str, Contender]) -> Markup:
    first, second = (
        sides[key].label if key in sides else "a voice that was deleted" for key in (tally.first, tally.second)
    )
    low, high = tally.interval
    facts = (
        f"{tally.first_wins} for the first, {tally.second_wins} for the second, {tally.num_same} saw no difference or "
        f"preferred another, {tally.num_bad} found none good; {tally.num_blind} of {tally.num_votes} were blind. "
    )
    if tally.share is None:
        facts += "No vote preferred one of the two yet."
    else:
        facts += (
            f"The first was preferred in {tally.share:.0%} of {count_of(tally.num_decided, 'decided vote')}; with 95 % "
            f"confidence the true share lies between {low:.0%} and {high:.0%}. "
        )
        facts += "That is more than luck." if tally.is_clear else "That can still be luck: vote on more sentences."
    return render("compare", "tally", first=first, second=second, facts=facts, share=tally.share, low=low, high=high)
