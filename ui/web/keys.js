// Keys that Gradio leaves out: Ctrl+Enter speaks, Space and the arrows move the player, arrows move within a group of
// radio buttons or links, and lists close when the focus leaves them.
(() => {
  const encore = (window.encore ??= {});
  const FIELDS = "input:not([type=radio]):not([type=checkbox]), textarea, select, [contenteditable], [role=slider]";
  const CONTROLS = `${FIELDS}, input, button, a, summary, [role=tab], [role=option], [tabindex="0"]`;
  const STEPS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

  // Each group has one Tab stop. Gradio gives every button a name of its own, so the browser does not see a group.
  function radios(element) {
    const group = element.closest("fieldset, [role=radiogroup]");
    return group ? [...group.querySelectorAll("input[type=radio]:not(:disabled)")] : [];
  }
  function rove(group) {
    const stop = group.find((one) => one.checked) ?? group[0];
    for (const one of group) one.tabIndex = one === stop ? 0 : -1;
  }
  function roveAll() {
    const groups = new Set();
    for (const one of document.querySelectorAll("input[type=radio]"))
      groups.add(one.closest("fieldset, [role=radiogroup]"));
    for (const group of groups) if (group) rove(radios(group.querySelector("input[type=radio]")));
  }

  function move(event, group, choose) {
    const step = STEPS[event.key];
    if (!step || group.length < 2) return false;
    event.preventDefault();
    event.stopPropagation();
    const next = group[(group.indexOf(event.target) + step + group.length) % group.length];
    next.focus();
    choose(next);
    return true;
  }

  encore.keys = {
    speak() {
      const button = [...document.querySelectorAll("#speak")].find((one) => one.checkVisibility());
      if (button && !button.disabled) button.click();
    },
  };

  document.addEventListener(
    "keydown",
    (event) => {
      const target = event.target;
      if (event.key === "Tab") return roveAll();
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        return encore.keys.speak();
      }
      if (event.key === "Escape" && encore.sheet.isOpen && !target.closest("[role=combobox]"))
        return encore.sheet.close();
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (target.matches?.("input[type=radio]")) {
        const group = radios(target);
        if (
          move(event, group, (next) => {
            next.click();
            rove(group);
          })
        )
          return;
      }
      const link = target.closest?.("#places [data-place]");
      if (link) {
        const links = [...document.querySelectorAll("#places [data-place]")];
        if (move(event, links, (next) => encore.nav.go(next.dataset.place))) return;
      }
      const isOfPlayer = target.closest?.("#dock");
      if (event.key === " " && !target.closest?.(CONTROLS)) {
        if (encore.player.current) event.preventDefault();
        encore.player.toggle();
      }
      if ((event.key === "ArrowLeft" || event.key === "ArrowRight") && encore.player.current) {
        const isSlider = target.matches?.("[role=slider]");
        if (isOfPlayer ? isSlider || target.matches("button") : !target.closest?.(CONTROLS)) {
          event.preventDefault();
          encore.player.step(STEPS[event.key]);
        }
      }
    },
    true,
  );

  // Gradio opens a list when its field is reached with Tab and may leave it open behind the focus.
  document.addEventListener("focusout", (event) => {
    const field = event.target;
    if (!field.matches?.('[role="combobox"]')) return;
    setTimeout(() => {
      const isElsewhere = document.activeElement !== field;
      if (isElsewhere && field.getAttribute("aria-expanded") === "true")
        field.dispatchEvent(new FocusEvent("blur", { bubbles: false }));
    }, 50);
  });
})();
