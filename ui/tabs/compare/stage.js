// What is compared, listened to and voted on with keys: A and B switch within the sentence, 1 and 2 vote, S and N too.
const FIELDS = "input:not([type=radio]):not([type=checkbox]), textarea, select, [contenteditable], [role=combobox]";
const test = () => element.querySelector(".test");
const card = (letter) => element.querySelector(`.take-card[data-letter="${letter}"]`);
const button = (letter) => card(letter)?.querySelector("[data-play]");
const letters = () => [...element.querySelectorAll(".take-card[data-letter]")].map((one) => one.dataset.letter);
let shown = "";
let heard = new Set();
let hadFocus = null;

// The letter whose take is in the player.
function sounding() {
  const url = encore.player.current?.url;
  return url ? letters().find((letter) => button(letter).dataset.play === url) : undefined;
}

// The second of one take at which it says what the other says at `seconds`.
function sameMoment(from, to, seconds) {
  const moments = JSON.parse(test().dataset.moments);
  const [ours, theirs] = [moments[from], moments[to]];
  const after = ours.findIndex((mark) => mark >= seconds);
  if (after <= 0) return theirs[after ? theirs.length - 1 : 0];
  const share = (seconds - ours[after - 1]) / Math.max(1e-6, ours[after] - ours[after - 1]);
  return theirs[after - 1] + share * (theirs[after] - theirs[after - 1]);
}

function hear(letter) {
  const to = button(letter);
  if (!to) return;
  heard.add(letter);
  const from = sounding();
  const { title } = to.dataset;
  if (!from || from === letter) {
    if (from && encore.player.current.isPlaying) encore.player.seek(0);
    else encore.player.play(to.dataset.play, { title }, from ? null : 0);
    return;
  }
  const { position, seconds } = encore.player.current;
  const isAtEnd = seconds && position >= seconds - 0.05;
  const marks = JSON.parse(test().dataset.moments)[letter];
  const at = isAtEnd ? 0 : sameMoment(from, letter, position) / Math.max(0.01, marks[marks.length - 1]);
  encore.player.play(to.dataset.play, { title }, Math.min(at, 0.999));
}

function vote(verdict) {
  const now = test();
  const { comparison } = now?.dataset ?? {};
  const pressed = element.querySelector(`[data-verdict="${verdict}"]`);
  if (!comparison || !pressed || now.classList.contains("voted")) return;
  now.classList.add("voted");
  pressed.classList.add("pressed");
  encore.player.pause();
  encore.fill("#vote", `${comparison}:${verdict}`);
  // If the vote did not arrive, it may be given again.
  setTimeout(() => now.classList.remove("voted"), 5000);
}

function finish() {
  encore.player.pause();
  encore.fill("#finish", String(Date.now()));
}

element.addEventListener("click", (event) => {
  const to = event.target.closest("[data-hear], [data-verdict], [data-finish]");
  if (!to) return;
  if (to.dataset.hear) hear(to.dataset.hear);
  else if (to.dataset.verdict) vote(to.dataset.verdict);
  else finish();
});

document.addEventListener("keydown", (event) => {
  if (encore.nav.here !== "compare" || !test()?.dataset.comparison || encore.sheet.isOpen) return;
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || event.target.closest?.(FIELDS)) return;
  const key = event.key.toUpperCase();
  if (letters().includes(key)) hear(key);
  else if (letters()[Number(key) - 1]) vote(letters()[Number(key) - 1]);
  else if (key === "S") vote("same");
  else if (key === "N") vote("bad");
  else return;
  event.preventDefault();
});

// Pairs sound by themselves, one take after the other, once there was a key or a click to begin with.
function begin() {
  heard = new Set();
  // A page that was loaded anew is silent until something is pressed: browsers allow no other sound.
  const mayPlay = navigator.userActivation?.hasBeenActive ?? true;
  if (encore.nav.here === "compare" && mayPlay) hear(letters()[0]);
}
function goOn() {
  const source = encore.player.current;
  const letter = test()?.dataset.comparison && encore.nav.here === "compare" && sounding();
  for (const one of element.querySelectorAll(".take-card[data-letter]"))
    one.classList.toggle("heard-now", one.dataset.letter === letter);
  if (!letter || source.isPlaying || !source.seconds || source.position < source.seconds - 0.05) return;
  const next = letters().find((one) => !heard.has(one));
  if (next) hear(next);
}
setInterval(goOn, 150);

const described = (one) =>
  ["data-verdict", "data-hear", "data-finish", "data-play"]
    .filter((name) => one.hasAttribute(name))
    .map((name) => (name === "data-play" ? "[data-play]" : `[${name}="${one.getAttribute(name)}"]`))[0] ?? null;
element.addEventListener("focusin", (event) => (hadFocus = described(event.target)));
element.addEventListener("focusout", (event) => event.relatedTarget && (hadFocus = null));

new MutationObserver(() => {
  const now = test();
  const state = now ? (now.dataset.comparison ?? (now.classList.contains("over") ? "over" : "waiting")) : "";
  if (state === shown) return;
  const before = shown;
  shown = state;
  if (now?.dataset.comparison) begin();
  // What was drawn anew has lost the focus to the page.
  if (document.activeElement !== document.body && before) return;
  if (state === "over") now.querySelector("[data-answer]").focus();
  else if (now && !before) now.focus({ preventScroll: true });
  else if (now && hadFocus) element.querySelector(hadFocus)?.focus({ preventScroll: true });
  if (now && !before) window.scrollTo(0, 0);
}).observe(element, { subtree: true, childList: true });
