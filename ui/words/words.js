// The words of the page for our scripts: `encore.words("player.play")`, and elements that name their word themselves.
(() => {
  const encore = (window.encore ??= {});
  const tables = encore.tables;
  const language = (navigator.languages ?? [navigator.language])
    .map((name) => name.toLowerCase().split("-")[0])
    .find((name) => name in tables);
  const table = tables[language ?? "en"];
  document.documentElement.lang = language ?? "en";

  encore.words = (key, values = {}) => (table[key] ?? key).replace(/\{(\w+)\}/g, (_, name) => values[name] ?? "");

  // Gradio's drop zones have words of their own; `page.css` shows these instead.
  document.documentElement.style.setProperty("--drop-words", JSON.stringify(encore.words("drop.words")));

  // What is the same for all visitors is written in English by the server.
  encore.words.apply = (element) => {
    for (const one of element.querySelectorAll("[data-word]")) one.textContent = encore.words(one.dataset.word);
    for (const one of element.querySelectorAll("[data-word-label]"))
      one.setAttribute("aria-label", encore.words(one.dataset.wordLabel));
  };
})();
