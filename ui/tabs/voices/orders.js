// Buttons on cards tell Gradio through a hidden field what was pressed; the card's answer gets the focus. An open menu
// stays open when the cards are drawn anew.
const FIELD = element.id === "space" ? "#space-order" : "#voice-order";
let ordered = null;
let answered = "";

const tile = (id) => element.querySelector(`[data-voice="${CSS.escape(id)}"]`);

function order(button) {
  const owner = button.closest("[data-voice]");
  const id = button.dataset.id ?? owner?.dataset.voice ?? "";
  const name = button.dataset.do === "rename" ? owner.querySelector(".rename input").value : "";
  for (const menu of element.querySelectorAll("details.menu[open]")) menu.open = false;
  ordered = { id, word: button.dataset.do };
  answered = "";
  encore.fill(FIELD, JSON.stringify({ do: button.dataset.do, id, name, at: Date.now() }));
}

async function copy(button) {
  const code = button.previousElementSibling.textContent;
  try {
    await navigator.clipboard.writeText(code);
    button.textContent = encore.words("voices.copied");
  } catch {
    // Without the clipboard, as over plain http: it is selected instead.
    getSelection().selectAllChildren(button.previousElementSibling);
  }
}

element.addEventListener("click", (event) => {
  const button = event.target.closest("[data-do]");
  if (button) order(button);
  const copied = event.target.closest("[data-copy]");
  if (copied) copy(copied);
});
element.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || !event.target.matches(".rename input")) return;
  event.preventDefault();
  order(event.target.closest(".rename").querySelector("[data-do]"));
});

// What is open and typed, to be there again after the cards were drawn anew.
let open = null;
element.addEventListener("toggle", (event) => {
  if (!event.target.matches("details.menu")) return;
  const id = event.target.closest("[data-voice]").dataset.voice;
  if (event.target.open) open = { id, name: null };
  else if (open?.id === id && event.target.isConnected) open = null;
}, true);
element.addEventListener("input", (event) => {
  if (open && event.target.matches(".rename input")) open.name = event.target.value;
});

new MutationObserver(() => {
  const menu = open && tile(open.id)?.querySelector("details.menu:not([open])");
  if (menu) {
    const { name } = open;
    menu.open = true;
    const field = menu.querySelector(".rename input");
    if (name !== null) field.value = name;
    if (document.activeElement === document.body) (name === null ? menu.querySelector("summary") : field).focus();
  }
  if (!ordered) return;
  const answer = (element.id === "space" ? element : tile(ordered.id))?.querySelector("[data-answer]");
  const words = answer?.textContent.trim() ?? "";
  if (answer && words !== answered) {
    answered = words;
    answer.focus();
    answer.scrollIntoView({ block: "nearest" });
  } else if (!answer && ordered.word === "purge") {
    element.querySelector("summary")?.focus();
    ordered = null;
  }
}).observe(element, { subtree: true, childList: true });
