// A run that has ended: the new voice speaks on Speak, and the menu deletes the run.
element.addEventListener("click", (event) => {
  const use = event.target.closest("[data-use]");
  if (use) {
    const field = document.querySelector("#saved-voice :is(input, textarea)");
    for (const value of ["", use.dataset.use]) {
      field.value = value;
      field.dispatchEvent(new Event("input", { bubbles: true }));
    }
    encore.nav.go("speak");
  }
  if (event.target.closest("[data-do=delete]")) trigger("click", {});
});
let isDone = element.querySelector(".result") !== null;
new MutationObserver(() => {
  const result = element.querySelector(".result");
  // Whoever waited for it hears at once what it came to.
  if (result && !isDone && encore.nav.here === "tune") result.focus({ preventScroll: true });
  isDone = result !== null;
}).observe(element, { childList: true, subtree: true });
