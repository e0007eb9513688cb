// Buttons inside rendered takes: tells Gradio which take, and which of its parts, is meant. They are real buttons, so keys
// work as well.
element.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-take]");
  if (button) trigger("click", { take: button.dataset.take, part: Number(button.dataset.part ?? 0) });
});
