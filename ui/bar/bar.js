// Where one can go: the links of the bar drive Gradio's own tabs, which are hidden, and the address names the tab.
// The sheet behind the model's chip, and light or dark.
(() => {
  const encore = (window.encore ??= {});
  const place = () => document.querySelector("#places");
  const links = () => [...document.querySelectorAll("#places [data-place]")];
  const known = (id) => links().some((link) => link.dataset.place === id);
  const tab = (id) => document.querySelector(`#steps [role="tab"][data-tab-id="${id}"]`);
  const chosen = () => document.querySelector('#steps [role="tab"][aria-selected="true"]')?.dataset.tabId;

  function mirror() {
    const id = chosen();
    if (!id) return;
    for (const link of links()) {
      const isHere = link.dataset.place === id;
      if (isHere) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
      link.tabIndex = isHere ? 0 : -1;
    }
    document.body.dataset.here = id;
    const words = encore.words(`bar.${id}`);
    document.title = id === "speak" ? "Encore" : `${words} · Encore`;
    // Not an entry of its own: the way back leads through what was pressed, not through what was shown.
    if (location.hash !== `#${id}` && !(id === "speak" && !location.hash)) history.replaceState(null, "", `#${id}`);
  }

  encore.nav = {
    go(id) {
      if (!known(id)) return;
      if (location.hash !== `#${id}`) history.pushState(null, "", `#${id}`);
      tab(id)?.click();
      window.scrollTo(0, 0);
    },
    get here() {
      return chosen();
    },
  };

  function follow() {
    const id = location.hash.slice(1);
    if (known(id)) tab(id)?.click();
    else if (!id) tab("speak")?.click();
  }
  window.addEventListener("popstate", follow);
  window.addEventListener("hashchange", follow);

  // Gradio draws its tabs after this has been read.
  function begin() {
    const tabs = document.querySelector("#steps .tab-wrapper");
    if (!tabs || !place()) return void setTimeout(begin, 30);
    new MutationObserver(mirror).observe(tabs, { subtree: true, attributes: true, attributeFilter: ["aria-selected"] });
    follow();
    mirror();
    encore.sheet.prepare();
  }
  begin();

  document.addEventListener("click", (event) => {
    const link = event.target.closest("[data-place]");
    if (link && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      encore.nav.go(link.dataset.place);
    }
    if (event.target.closest(".skip")) {
      event.preventDefault();
      encore.nav.go("speak");
      // The tab is drawn in its own time.
      setTimeout(() => document.querySelector("#text textarea")?.focus(), 50);
    }
    if (event.target.closest("#theme")) encore.theme(!document.body.classList.contains("dark"));
    if (event.target.closest("#log-out"))
      fetch("logout", { method: "POST" }).finally(() => location.reload());
    if (event.target.closest(".close-sheet")) encore.sheet.close();
    else if (encore.sheet.isOpen && !event.target.closest("#sheet, #model-chip, .options, .toast-wrap"))
      encore.sheet.close();
  });

  encore.theme = (isDark) => {
    document.body.classList.toggle("dark", isDark);
    localStorage.setItem("encore-theme", isDark ? "dark" : "light");
  };
  const remembered = localStorage.getItem("encore-theme");
  // Gradio follows the system once it has started.
  if (remembered)
    new MutationObserver((_, watch) => {
      if (!document.querySelector(".gradio-container")) return;
      watch.disconnect();
      document.body.classList.toggle("dark", remembered === "dark");
    }).observe(document.documentElement, { subtree: true, childList: true });

  let opener = null;
  encore.sheet = {
    get isOpen() {
      return document.querySelector("#sheet")?.classList.contains("open") ?? false;
    },
    prepare() {
      const sheet = document.querySelector("#sheet");
      sheet.setAttribute("role", "dialog");
      sheet.setAttribute("aria-modal", "true");
      sheet.setAttribute("aria-label", encore.words("sheet.title"));
      sheet.inert = true;
      // Without a model nothing can be done elsewhere; with another one this is done.
      const chip = document.querySelector("#model-chip");
      let before = null;
      new MutationObserver(() => {
        const now = chip.querySelector(".chip")?.classList;
        const state = ["ready", "missing", "busy"].find((one) => now?.contains(one));
        if (state === before) return;
        if (state === "missing") encore.sheet.open();
        if (state === "ready" && before !== null) encore.sheet.close();
        before = state;
      }).observe(chip, { subtree: true, childList: true });
    },
    open() {
      if (encore.sheet.isOpen) return;
      opener = document.activeElement;
      behind().forEach((one) => (one.inert = true));
      const sheet = document.querySelector("#sheet");
      sheet.classList.add("open");
      sheet.inert = false;
      // What is still hidden in this frame cannot have the focus.
      setTimeout(() => document.querySelector(".close-sheet").focus(), 60);
    },
    close() {
      if (!encore.sheet.isOpen) return;
      behind().forEach((one) => (one.inert = false));
      const sheet = document.querySelector("#sheet");
      sheet.classList.remove("open");
      sheet.inert = true;
      if (opener?.isConnected && opener !== document.body) opener.focus();
      else document.querySelector("#model-chip button")?.focus();
    },
  };
  const behind = () => [...document.querySelectorAll("#bar, #steps, #dock")];
})();
