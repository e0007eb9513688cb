// Buttons inside rendered takes: tells Gradio which take, and which of its parts, is meant. They are real buttons, so keys
// work as well.
element.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-take]");
  if (button) trigger("click", { take: button.dataset.take, part: Number(button.dataset.part ?? 0) });
  const again = event.target.closest("button[data-again]");
  if (again) sayAgain(again.dataset.text ?? again.closest(".take").querySelector("blockquote").textContent);
});
function sayAgain(text) {
  encore.nav.go("speak");
  const field = document.querySelector("#text textarea");
  field.value = text;
  field.dispatchEvent(new Event("input", { bubbles: true }));
  // Gradio takes the text over in its own time.
  setTimeout(encore.keys.speak, 100);
}
