// One menu at a time, wherever it is; it closes when the focus or a click goes elsewhere, and with Escape.
// It opens where there is room: inside the window, and neither under the player nor under the bar.
(() => {
  const edge = 16;

  // What is fixed to the window: the bar above, and below it the player and, on phones, the places.
  const room = () => {
    let [top, bottom] = [0, innerHeight];
    for (const one of document.querySelectorAll("#bar, #places, .dock:not([hidden])")) {
      const box = one.getBoundingClientRect();
      if (box.top > innerHeight / 2) bottom = Math.min(bottom, box.top);
      else top = Math.max(top, box.bottom);
    }
    return [top, bottom];
  };

  const place = (menu) => {
    const body = menu.querySelector(".menu-body");
    if (!body) return;
    menu.classList.remove("upwards");
    body.style.translate = "";
    const box = body.getBoundingClientRect();
    const beyond = Math.min(0, box.left - edge) || Math.max(0, box.right - (document.documentElement.clientWidth - edge));
    const [top, bottom] = room();
    const below = Math.max(0, box.bottom - bottom);
    const isUpwards = below > 0 && box.height < menu.getBoundingClientRect().top - top;
    menu.classList.toggle("upwards", isUpwards);
    // Where it fits neither below nor above, it covers what opened it.
    const up = isUpwards || !below ? 0 : Math.min(below + edge, box.top - top - edge);
    body.style.translate = `${-beyond}px ${-up}px`;
  };

  // It does not bubble.
  document.addEventListener("toggle", (event) => event.target.matches?.("details.menu[open]") && place(event.target), true);
  document.addEventListener("click", (event) => {
    for (const menu of document.querySelectorAll("details.menu[open]"))
      if (!menu.contains(event.target)) menu.open = false;
  });
  document.addEventListener("focusout", (event) => {
    const menu = event.target.closest?.("details.menu[open]");
    if (menu && event.relatedTarget && !menu.contains(event.relatedTarget)) menu.open = false;
  });
  document.addEventListener("keydown", (event) => {
    const menu = event.key === "Escape" && event.target.closest?.("details.menu[open]");
    if (!menu) return;
    menu.open = false;
    menu.querySelector("summary").focus();
  });
})();
