// The list of clips: texts, verdicts and cuts are changed in the rows, by mouse and by keys. What is asked for goes to
// Python through a hidden field; the rows come back drawn anew, with the focus and what was being typed as before.
const rows = () => [...element.querySelectorAll(".clip-row")];
const drafts = new Map();
let sent = 0;
let at = null; // the clip with the focus, its place in the list, and which of its parts
let isTurning = false;
const answered = new WeakSet();

function send(id, value) {
  const field = document.querySelector(`${id} :is(input, textarea)`);
  if (!field) return;
  field.value = value;
  field.dispatchEvent(new Event("input", { bubbles: true }));
}
function tell(row, deed) {
  // What was said to an earlier deed goes, so that the answer to this one is a new element.
  for (const said of element.querySelectorAll(".clip-said")) said.remove();
  send("#clip-edit", JSON.stringify({ clip: row.dataset.clip, number: ++sent, ...deed }));
}

// Only the parts of the row at hand are stops of the Tab key.
function activate(row) {
  for (const one of rows()) {
    const isIt = one === row;
    one.tabIndex = isIt ? 0 : -1;
    for (const part of one.querySelectorAll("button, textarea, input, summary, .handle")) part.tabIndex = isIt ? 0 : -1;
  }
}

// What a clip says, and how it is said.
const WRITTEN = { ".clip-text": "text", ".clip-style": "style" };
const written = (part) => Object.keys(WRITTEN).find((one) => part.matches(one));
const fieldOf = (clip, part) => element.querySelector(`[data-clip="${CSS.escape(clip)}"] ${part}`);
const draftOf = (field) => JSON.stringify([field.closest(".clip-row").dataset.clip, written(field)]);
function saveWritten(field) {
  drafts.delete(draftOf(field));
  if (field.value !== field.defaultValue)
    tell(field.closest(".clip-row"), { do: WRITTEN[written(field)], text: field.value });
}

function judge(row, verdict) {
  const button = row.querySelector(`[data-do="${verdict}"]`);
  tell(row, { do: button.getAttribute("aria-pressed") === "true" ? "judged" : verdict });
}

// Two handles: where the clip begins and ends in its recording.
const SHORTEST = 0.5;
function place(cut, side, seconds) {
  const [from, to] = [Number(cut.dataset.from), Number(cut.dataset.to)];
  const [start, end] = [Number(cut.dataset.start), Number(cut.dataset.end)];
  const now = side === "start" ? Math.max(from, Math.min(seconds, end - SHORTEST)) : Math.min(to, Math.max(seconds, start + SHORTEST));
  cut.dataset[side] = now.toFixed(3);
  cut.style.setProperty(side === "start" ? "--a" : "--b", `${(100 * (now - from)) / (to - from)}%`);
  const handle = cut.querySelector(`.handle.${side}`);
  handle.setAttribute("aria-valuenow", now.toFixed(2));
  handle.setAttribute("aria-valuetext", `${now.toFixed(2)} s`);
  cut.classList.add("moved");
}
function applyCut(row) {
  const cut = row.querySelector(".cut.moved");
  if (!cut) return;
  cut.classList.remove("moved");
  tell(row, { do: "cut", start: Number(cut.dataset.start), end: Number(cut.dataset.end) });
}

element.addEventListener("pointerdown", (event) => {
  const handle = event.target.closest(".handle");
  if (!handle) return;
  event.preventDefault();
  handle.focus();
  handle.setPointerCapture(event.pointerId);
});
element.addEventListener("pointermove", (event) => {
  const handle = event.target.closest(".handle");
  if (!handle?.hasPointerCapture(event.pointerId)) return;
  const cut = handle.closest(".cut");
  const box = cut.getBoundingClientRect();
  const [from, to] = [Number(cut.dataset.from), Number(cut.dataset.to)];
  place(cut, handle.dataset.side, from + ((event.clientX - box.left) / box.width) * (to - from));
});
element.addEventListener("pointerup", (event) => {
  const row = event.target.closest(".handle") && event.target.closest(".clip-row");
  if (row) applyCut(row);
});

element.addEventListener("click", (event) => {
  const page = event.target.closest("[data-page]");
  if (page) return turn(Number(page.dataset.page));
  const row = event.target.closest(".clip-row");
  const button = event.target.closest("[data-do]");
  if (row && button) {
    const deed = button.dataset.do;
    const menu = button.closest("details.menu");
    if (menu) {
      menu.open = false;
      menu.querySelector("summary").focus();
    }
    if (deed === "accepted" || deed === "rejected") judge(row, deed);
    else tell(row, { do: deed, text: button.dataset.text ?? "" });
  } else if (row && !event.target.closest("button, textarea, input, summary, a, .cut, .menu-body")) row.focus();
});

element.addEventListener("focusin", (event) => {
  const row = event.target.closest(".clip-row");
  if (!row) return;
  activate(row);
  const part = event.target === row ? "" : partOf(event.target);
  at = { clip: row.dataset.clip, index: rows().indexOf(row), part };
});
element.addEventListener("focusout", (event) => {
  if (event.target.matches(".handle")) applyCut(event.target.closest(".clip-row"));
  if (event.relatedTarget && !element.contains(event.relatedTarget)) at = null;
});
function partOf(part) {
  if (written(part)) return written(part);
  if (part.matches(".handle")) return `.handle.${part.dataset.side}`;
  if (part.dataset.do && part.closest(".clip-keys")) return `[data-do="${part.dataset.do}"]`;
  return part.matches(".menu > summary") ? ".menu > summary" : "";
}

element.addEventListener("input", (event) => {
  if (written(event.target)) drafts.set(draftOf(event.target), event.target.value);
});
element.addEventListener("change", (event) => {
  if (written(event.target)) saveWritten(event.target);
});

element.addEventListener("keydown", (event) => {
  const row = event.target.closest(".clip-row");
  if (!row || event.ctrlKey || event.metaKey || event.altKey) return;
  if (written(event.target)) {
    if (event.key === "Escape") {
      event.target.value = event.target.defaultValue;
      drafts.delete(draftOf(event.target));
      row.focus();
    } else if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      // Leaving the field saves it.
      row.focus();
    }
    return;
  }
  if (event.target.matches(".handle")) {
    const step = { ArrowLeft: -0.05, ArrowRight: 0.05, PageDown: -0.5, PageUp: 0.5 }[event.key];
    const cut = row.querySelector(".cut");
    const side = event.target.dataset.side;
    if (step) {
      event.preventDefault();
      place(cut, side, Number(cut.dataset[side]) + step);
      return;
    }
    if (event.key === "Enter") return applyCut(row);
  }
  const menu = event.key === "Escape" && event.target.closest("details.menu[open]");
  if (menu) {
    menu.open = false;
    return menu.querySelector("summary").focus();
  }
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step) {
    event.preventDefault();
    const all = rows();
    const next = all[all.indexOf(row) + step];
    if (next) next.focus();
    else turn(null, step);
    return;
  }
  if (event.target !== row) return;
  const act = {
    " ": () => row.querySelector(".play")?.click(),
    a: () => judge(row, "accepted"),
    r: () => judge(row, "rejected"),
    Enter: () => row.querySelector(".clip-text").focus(),
    e: () => row.querySelector(".clip-text").focus(),
  }[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!act) return;
  event.preventDefault();
  act();
});

// The buttons below the list belong to another element; at the ends of a page the arrows turn it.
const turners = () => [...document.querySelectorAll("#clip-pages [data-page]")];
function turn(page, step = 0) {
  const button = step ? turners()[step < 0 ? 0 : 1] : null;
  if (step && (!button || button.disabled)) return;
  isTurning = step || true;
  send("#clip-page", String(page ?? button.dataset.page));
}
document.addEventListener("click", (event) => {
  const button = event.target.closest("#clip-pages [data-page]");
  if (button) turn(Number(button.dataset.page));
  for (const menu of element.querySelectorAll("details[open]")) if (!menu.contains(event.target)) menu.open = false;
});

// Drawn anew: what was being typed is put back, and the focus where it was.
function settle() {
  for (const [draft, text] of drafts) {
    const field = fieldOf(...JSON.parse(draft));
    if (field) field.value = text;
  }
  const all = rows();
  if (!all.length) return;
  const isLost = document.activeElement === document.body || !document.activeElement?.isConnected;
  const same = at && all.find((one) => one.dataset.clip === at.clip);
  activate(same ?? all[0]);
  const answer = element.querySelector(".clip-said.bad");
  if (isTurning) {
    const row = all[isTurning === -1 ? all.length - 1 : 0];
    isTurning = false;
    row.focus();
  } else if (answer && !answered.has(answer)) {
    answered.add(answer);
    answer.focus();
  } else if (at && isLost) {
    // A clip that the filter lets pass no more leaves its place to the next.
    const row = same ?? all[Math.min(at.index, all.length - 1)];
    ((same && at.part && row.querySelector(at.part)) || row).focus();
  }
}
new MutationObserver(settle).observe(element, { childList: true, subtree: true });
settle();
