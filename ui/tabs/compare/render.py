"""What the Compare tab shows: a pair to listen to, and at the end who was who and what the votes mean. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from backend.audio.quality import peak_envelope
from backend.comparisons.comparison import ComparedTake, Comparison, Letter
from backend.comparisons.contenders import Contender
from backend.comparisons.listening_test import ListeningTest
from backend.comparisons.make_comparison import ComparisonProgress
from backend.comparisons.preference import Tally
from backend.evaluation.score_words import describe_likeness
from backend.evaluation.scores import TakeScores
from ui.html.messages import NOTHING, says
from ui.html.sides import side_name
from ui.html.spectrogram import spectrogram_html
from ui.html.takes import ENDINGS
from ui.html.templates import html, render
from ui.html.waveform import waveform_svg
from ui.words.sentences import translated
from ui.words.words import say

_NUM_BARS = 120


@dataclass(frozen=True, kw_only=True, eq=False)
class HeardTake:
    """The sound of a take, for its pictures, and its moments in seconds that belong to those of the other takes."""

    path: Path
    samples: NDArray[np.float32]
    sample_rate: int
    moments: Sequence[float]


@dataclass(frozen=True, kw_only=True)
class TakePictures:
    """Of one take, what the page shows of its sound."""

    path: Path
    waveform: Markup
    spectrogram: Markup
    moments: Sequence[float]


Pictures = Mapping[Letter, TakePictures]


def draw(heard: Mapping[Letter, HeardTake]) -> Pictures:
    """The pictures of the takes of a comparison."""
    return {
        letter: TakePictures(
            path=take.path,
            waveform=waveform_svg(
                peak_envelope(take.samples, _NUM_BARS), say("compare.waveform", letter=letter), take.path
            ),
            spectrogram=spectrogram_html(take.samples, take.sample_rate, say("compare.spectrogram", letter=letter)),
            moments=take.moments,
        )
        for letter, take in heard.items()
    }


def waiting_html(test: ListeningTest) -> Markup:
    """In place of a pair that is still being made."""
    number = min(len(test.voted) + 1, len(test.orders))
    return render(
        "compare",
        "waiting",
        dots=_dots(test),
        number=number,
        total=len(test.orders),
        text=test.orders[number - 1].text,
        letters=("A", "B", "C")[: len(test.orders[0].sides)],
        progress=progress_in_words(test.progress) if test.progress else say("compare.getting_ready"),
    )


def progress_in_words(progress: ComparisonProgress) -> str:
    """How far making a comparison is; in steps, so that the page is not drawn anew all the time."""
    place = {"number": progress.number, "total": progress.num_sides}
    return say("compare.loading" if progress.doing == "loading" else "compare.speaking", **place)


def pair_html(test: ListeningTest, comparison: Comparison, pictures: Pictures) -> Markup:
    """The takes to choose from; who is who only if the listener may know."""
    names = {take.letter: side_name(take.side) for take in comparison.takes} if comparison.is_revealed else {}
    return render(
        "compare",
        "pair",
        dots=_dots(test),
        comparison=comparison,
        number=len(test.voted) + 1,
        total=len(test.orders),
        takes=[
            {"letter": letter, "key": key, "name": names.get(letter, ""), "pictures": pictures[letter]}
            for key, letter in enumerate(pictures, 1)
        ],
        moments=json.dumps({letter: [round(mark, 3) for mark in pictures[letter].moments] for letter in pictures}),
    )


def over_html(
    voted: Sequence[Comparison],
    pictures: Mapping[str, Pictures],
    tallies: Sequence[Tally],
    sides: Sequence[Contender],
    methods: Markup = NOTHING,
) -> Markup:
    """Who was who, what all votes on them say, and what the ways in which their clips were learnt came to."""
    if not voted:
        return says("mixed", say("compare.no_votes"))
    by_key = {side.key: side for side in sides}
    advice = advice_html(tallies, by_key)
    return render(
        "compare",
        "over",
        head=headline(tallies, by_key),
        sides=[_counted(side, voted) for side in sides],
        tallies=[_tally(tally, by_key, len(voted)) for tally in tallies if tally.num_votes],
        # What says nothing makes the whole place around it take no room.
        advice="" if advice == NOTHING else advice,
        methods="" if methods == NOTHING else methods,
        pairs=[_heard_pair(one, pictures.get(one.id, {})) for one in voted],
        num_none=sum(one.winner is None for one in voted),
    )


def headline(tallies: Sequence[Tally], sides: Mapping[str, Contender]) -> str:
    """The result in a sentence."""
    leaders = [tally.leader for tally in tallies]
    leader = next((key for key in sides if leaders.count(key) == len(sides) - 1), None)
    if leader is None:
        return say("compare.even")
    clear = all(tally.is_clear for tally in tallies if leader in (tally.first, tally.second))
    won = min(tally.num_decided for tally in tallies if leader in (tally.first, tally.second))
    name = side_name(sides[leader])
    return say("compare.clear", name=name) if clear and won else say("compare.ahead", name=name)


def advice_html(tallies: Sequence[Tally], sides: Mapping[str, Contender]) -> Markup:
    """What would help if zero-shot wins over a fine-tune; nothing otherwise."""
    for tally in tallies:
        leader = sides.get(tally.leader or "")
        other = sides.get(tally.second if tally.leader == tally.first else tally.first)
        if leader is None or other is None or leader.is_fine_tuned or not other.is_fine_tuned:
            continue
        text = say("compare.zero_shot_won" if tally.is_clear else "compare.zero_shot_ahead")
        helps = (
            say("compare.help_minutes"),
            say("compare.help_words"),
            say("compare.help_earlier"),
            say("compare.help_room"),
        )
        return says("mixed", text, more=html("<ul>{}</ul>", Markup().join(html("<li>{}</li>", one) for one in helps)))
    return NOTHING


def _dots(test: ListeningTest) -> list[str]:
    """Of each sentence whether it was voted on, is listened to, is there, or is still to be made."""
    num_voted, num_made = len(test.voted), len(test.made)
    states = []
    for number in range(len(test.orders)):
        if number < num_voted:
            states.append("done")
        elif number == num_voted:
            states.append("now")
        else:
            states.append("ready" if number < num_made else "")
    return states


def _counted(side: Contender, voted: Sequence[Comparison]) -> dict[str, object]:
    name, _, way = side_name(side).rpartition(": ")
    won = sum(one.winner is not None and one.winner.side.key == side.key for one in voted)
    most = max(
        sum(one.winner is not None and one.winner.side.key == take.side.key for one in voted) for take in voted[0].takes
    )
    return {"name": name or way, "way": way if name else "", "won": won, "is_first": won == most and won > 0}


def _tally(tally: Tally, sides: Mapping[str, Contender], num_now: int) -> dict[str, object]:
    """The votes of a pair, as a bar between the two names: the share of the first, to the left."""
    low, high = tally.interval
    share = tally.share
    words = say("compare.nothing_decided")
    if share is not None:
        words = say(
            "compare.luck_not" if tally.is_clear else "compare.luck_perhaps",
            share=f"{share:.0%}",
            number=tally.num_decided,
            low=f"{low:.0%}",
            high=f"{high:.0%}",
        )
    before = tally.num_votes - num_now
    if before > 0:
        words = f"{words} {say('compare.earlier', number=before)}"
    gone = say("compare.deleted")
    return {
        "first": side_name(sides[tally.first]) if tally.first in sides else gone,
        "second": side_name(sides[tally.second]) if tally.second in sides else gone,
        "first_wins": tally.first_wins,
        "second_wins": tally.second_wins,
        "share": share,
        "low": low,
        "high": high,
        "words": words,
    }


def _heard_pair(comparison: Comparison, pictures: Pictures) -> dict[str, object]:
    """A comparison after its vote: who spoke, and what was measured."""
    return {
        "text": comparison.text,
        "seed": comparison.seed,
        "vote": verdict_in_words(comparison),
        "takes": [_revealed(take, pictures, comparison) for take in comparison.takes if take.letter in pictures],
    }


def verdict_in_words(comparison: Comparison) -> str:
    """What was voted, and for whom."""
    winner = comparison.winner
    if winner is not None:
        return say("compare.your_vote", name=side_name(winner.side))
    return say("compare.your_same") if comparison.verdict == "same" else say("compare.your_bad")


def _revealed(take: ComparedTake, pictures: Pictures, comparison: Comparison) -> dict[str, object]:
    return {
        "take": take,
        "name": side_name(take.side),
        "pictures": pictures[take.letter],
        "has_won": comparison.verdict == take.letter,
        "scores": _score_rows(take.scores) if take.scores is not None else [],
        "ending": say(ENDINGS[take.finish_reason]),
    }


def _score_rows(scores: TakeScores) -> list[tuple[str, str]]:
    rows = [(say("compare.length_ratio"), f"{scores.duration_ratio:.2f}")]
    likeness = translated(describe_likeness(scores))
    if likeness:
        rows.append((say("compare.likeness"), likeness))
    if scores.verified_similarity is not None and scores.speaker_similarity is not None:
        rows.append((say("compare.likeness_own"), f"{scores.speaker_similarity:.2f}"))
    heard = [] if scores.word_error is None else [(scores.transcriber, scores.word_error)]
    heard += [(other.listener, other.word_error) for other in scores.also_heard]
    rows += [
        (say("compare.misheard_by", listener=listener) if listener else say("compare.misheard"), f"{error:.0%}")
        for listener, error in heard
    ]
    if scores.clipped_share > 0:
        rows.append((say("compare.cut_off"), f"{scores.clipped_share:.1%}"))
    return rows
