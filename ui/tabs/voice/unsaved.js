// A recording that is not in the library is gone with the page, and what was typed about it as well: ask before.
const recording = () => document.querySelector('.voice-choice[data-kind="recording"]')?.dataset.voiceKey;
let saved = null;

new MutationObserver(() => {
  if (element.querySelector(".says.good")) saved = recording();
}).observe(element, { childList: true, subtree: true });

window.addEventListener("beforeunload", (event) => {
  const now = recording();
  if (now && now !== saved) event.preventDefault();
});
