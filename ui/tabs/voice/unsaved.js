// A recording that is not in the library is gone with the page, and what was typed about it as well: ask before.
const recording = () => document.querySelector('.voice-choice[data-kind="recording"]')?.dataset.voiceKey;
const saved = new Set();

new MutationObserver(() => {
  // Another recording may have been given while this one was being saved.
  const note = element.querySelector("[data-saved-key]");
  if (note) saved.add(note.dataset.savedKey);
}).observe(element, { childList: true, subtree: true });

window.addEventListener("beforeunload", (event) => {
  const now = recording();
  if (now && !saved.has(now)) event.preventDefault();
});
