// From a voice to the tab that does something with it: `data-go="speak" data-voice-id="…"`. The tab finds the voice in
// a hidden field of its own; a tab that was never looked at has to be drawn first.
(() => {
  const encore = (window.encore ??= {});
  const FIELDS = { speak: "#saved-voice", compare: "#compare-voice" };
  const PATIENCE_MS = 3000;
  let count = 0;

  // Tells Gradio a value as if it had been typed.
  encore.fill = (place, value) => {
    const field = document.querySelector(`${place} :is(input, textarea)`);
    if (!field) return false;
    field.value = value;
    field.dispatchEvent(new Event("input", { bubbles: true }));
    return true;
  };

  encore.bring = (place, voice) => {
    encore.nav.go(place);
    const since = performance.now();
    const tell = () => {
      // The same voice again is a change as well.
      const value = voice + " ".repeat(1 + (++count % 2));
      if (!encore.fill(FIELDS[place], value) && performance.now() - since < PATIENCE_MS) setTimeout(tell, 50);
    };
    setTimeout(tell, 50);
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-go]");
    if (button) encore.bring(button.dataset.go, button.dataset.voiceId);
  });
})();
