// Buttons inside rendered HTML: tells Gradio which one was pressed. They are real buttons, so keys work as well.
element.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-clip]");
  if (!button) return;
  trigger("click", { clip: button.dataset.clip, button: button.className });
  // The clip is worked on below the table, out of sight.
  if (button.classList.contains("choose-clip")) document.getElementById("clip").scrollIntoView({ behavior: "smooth" });
});
