// Beside the text: how many words it has, how long it will take to say, and which of Speak and Stop has the focus.
const CHARACTERS_PER_SECOND = 15;
const field = () => document.querySelector("#text textarea");

function inWords(seconds) {
  if (seconds < 60) return encore.words("speak.seconds", { number: Math.max(1, Math.round(seconds)) });
  return encore.words("speak.minutes", { number: Math.round(seconds / 60) });
}

function count() {
  const text = field()?.value.trim() ?? "";
  const number = text ? text.split(/\s+/).length : 0;
  const line = element.querySelector(".count");
  const words = encore.words(number === 1 ? "speak.word" : "speak.words", { number });
  const said = number ? `${words} · ${encore.words("speak.about", { time: inWords(text.length / CHARACTERS_PER_SECOND) })}` : "";
  if (line.textContent !== said) line.textContent = said;
}

document.addEventListener("input", (event) => event.target === field() && count());
// A text that comes from elsewhere, such as the draft of the last visit, is no input.
setInterval(count, 500);

const speaking = document.querySelector("#speaking");
let hadFocus = false;
document.addEventListener("click", (event) => {
  if (event.target.closest("#speak, #stop")) hadFocus = true;
});
new MutationObserver(() => {
  if (!hadFocus) return;
  const isSpeaking = speaking.querySelector("i");
  // What is not shown any more loses the focus only when the page is drawn the next time.
  setTimeout(() => {
    const focused = document.activeElement;
    if (focused !== document.body && focused?.checkVisibility()) return;
    document.querySelector(isSpeaking ? "#stop" : "#speak")?.focus({ preventScroll: true });
  }, 50);
}).observe(speaking, { subtree: true, childList: true });

document.addEventListener("click", (event) => {
  const handle = event.target.closest("#settings-handle button");
  if (handle) handle.ariaExpanded = String(handle.ariaExpanded !== "true");
});
