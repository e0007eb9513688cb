"""A page to hear for oneself what the mark does: ten pairs of takes, one of each marked, in an order that is hidden."""

from __future__ import annotations

import base64
import html
import json
import random
from collections.abc import Sequence

from backend.audio.encoding import encode
from tests.benchmarks.watermark_takes import RATE, PlannedTake, Sound, mark

NUM_PAIRS = 10

_PAGE = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Which one is marked?</title>
<style>
  :root { color-scheme: light dark }
  body { font: 1rem/1.5 system-ui, sans-serif; max-width: 44rem; margin: 2rem auto; padding: 0 1rem }
  fieldset { margin: 1rem 0; border: 1px solid #8888; border-radius: .5rem }
  audio { vertical-align: middle; width: 14rem } label { margin-right: 1rem; white-space: nowrap }
  .right { border-color: #2a7 } .wrong { border-color: #c44 }
  output { display: block; margin: 1rem 0; font-weight: 600 }
</style>
<h1>Which one is marked?</h1>
<p>Each pair is one take twice: as the voice spoke it, and with Encore's watermark. Say which of the two is marked;
guess where you hear no difference. The answers are shown when all ten are chosen. Headphones help. Sounds are
lossless.</p>
<form>PAIRS<button>Show the answers</button><output role="status"></output></form>
<script>
  const marked = MARKED;
  document.querySelector("form").addEventListener("submit", (event) => {
    event.preventDefault();
    const pairs = [...document.querySelectorAll("fieldset")];
    const chosen = pairs.map((pair) => pair.querySelector("input:checked")?.value);
    const shown = document.querySelector("output");
    const missing = chosen.findIndex((one) => !one);
    if (missing >= 0) {
      shown.textContent = `Pair ${missing + 1} has no answer yet.`;
      pairs[missing].querySelector("input").focus();
      return;
    }
    pairs.forEach((pair, place) => {
      pair.className = chosen[place] === marked[place] ? "right" : "wrong";
      pair.querySelector("span").textContent = `${marked[place]} is marked.`;
    });
    const right = chosen.filter((one, place) => one === marked[place]).length;
    const ways = (all, some) => { let n = 1; for (let k = 0; k < some; k++) n = n * (all - k) / (k + 1); return n; };
    let chance = 0;
    for (let k = right; k <= pairs.length; k++) chance += ways(pairs.length, k) / 2 ** pairs.length;
    shown.textContent = `${right} of ${pairs.length} right. Somebody who only guesses gets so many or more in ` +
      `${(100 * chance).toFixed(1)} % of all cases.`;
  });
</script>
</html>
"""


def listening_page(takes: Sequence[tuple[PlannedTake, Sound]], seed: int | None = None) -> str:
    """The page, with its sounds in it; without a seed the order is another one each time."""
    draw = random.Random(seed)
    pairs, answers = [], []
    for number, (take, samples) in enumerate(takes[:NUM_PAIRS]):
        answers.append(draw.choice("AB"))
        sounds = {answers[-1]: mark(samples, take.number), "BA"["AB".index(answers[-1])]: samples}
        pairs.append(_pair(number, take, sounds))
    return _PAGE.replace("PAIRS", "\n".join(pairs)).replace("MARKED", json.dumps(answers))


def _pair(number: int, take: PlannedTake, sounds: dict[str, Sound]) -> str:
    choices = "\n".join(_choice(number, letter, sounds[letter]) for letter in "AB")
    legend = f"{number + 1}. {html.escape(take.voice)}: {html.escape(take.text)}"
    return f"<fieldset><legend>{legend}</legend>\n{choices}\n<span></span></fieldset>"


def _choice(number: int, letter: str, samples: Sound) -> str:
    source = f"data:audio/flac;base64,{base64.b64encode(encode(samples, RATE, 'flac')).decode()}"
    return (
        f'<label><input type="radio" name="pair{number}" value="{letter}"> {letter}</label>'
        f'<audio controls aria-label="Pair {number + 1}, {letter}" src="{source}"></audio>'
    )
