// The rail of voices. A card tells Gradio through a hidden field which voice was chosen; arrows move along the cards.
const FIELDS = { sample: "#sample", voice: "#saved-voice" };
const choices = () => [...element.querySelectorAll(".voice-choice")];

function choose(button) {
  for (const one of choices()) {
    const isIt = one === button;
    one.setAttribute("aria-checked", String(isIt));
    one.tabIndex = isIt ? 0 : -1;
    one.parentElement.classList.toggle("chosen", isIt);
  }
  const field = document.querySelector(`${FIELDS[button.dataset.kind]} :is(input, textarea)`);
  if (!field) return;
  // The same voice again is a change as well: a recording may have come between.
  field.value = button.dataset.voiceKey + (field.value.endsWith(" ") ? "" : " ");
  field.dispatchEvent(new Event("input", { bubbles: true }));
}

encore.voice = {
  // The steps to a new voice; they open by themselves when a file is dropped on them.
  open(isOpen) {
    const panel = document.querySelector("#new-voice");
    panel.classList.toggle("open", isOpen);
    element.querySelector("[data-new]")?.setAttribute("aria-expanded", String(isOpen));
    if (isOpen) panel.querySelector("button, input")?.focus();
    else element.querySelector('.voice-choice[tabindex="0"]')?.focus();
  },
};

element.addEventListener("click", (event) => {
  const button = event.target.closest(".voice-choice");
  if (button) choose(button);
  if (event.target.closest("[data-new]"))
    encore.voice.open(!document.querySelector("#new-voice").classList.contains("open"));
});

element.addEventListener("keydown", (event) => {
  const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
  if (!step || !event.target.matches(".voice-choice")) return;
  event.preventDefault();
  const all = choices();
  const next = all[(all.indexOf(event.target) + step + all.length) % all.length];
  for (const one of all) one.tabIndex = one === next ? 0 : -1;
  next.focus();
});

document.addEventListener("click", (event) => {
  if (event.target.closest("#voice-done")) encore.voice.open(false);
  if (event.target.closest("[data-open-voice]")) encore.voice.open(true);
});
