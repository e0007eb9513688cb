// How long a recording should be, while it is made: a bar with a mark at ten seconds, from which a voice clones well.
const GOOD_SECONDS = 10;
const FULL_SECONDS = 20;
const bar = element.querySelector(".record-mark");

function show(seconds) {
  bar.style.setProperty("--recorded", `${Math.min(100, (100 * seconds) / FULL_SECONDS)}%`);
  bar.classList.toggle("enough", seconds >= GOOD_SECONDS);
  const words = seconds < GOOD_SECONDS ? "speak.record_on" : "speak.record_enough";
  const said = encore.words(words, { seconds, least: GOOD_SECONDS });
  const label = bar.lastElementChild;
  if (label.textContent !== said) label.textContent = said;
}

// Gradio's recorder says nothing when it begins and ends; its Stop button is there while it records.
let timer = null;
function follow() {
  if (timer !== null) return;
  let began = null;
  let left = 0;
  timer = setInterval(() => {
    const isRecording = Boolean(document.querySelector("#microphone .stop-button")?.offsetParent);
    if (isRecording) {
      began ??= performance.now();
      show(Math.floor((performance.now() - began) / 1000));
    }
    bar.hidden = !isRecording;
    // The browser may ask for the microphone first.
    left = isRecording ? 0 : left + 1;
    if (began !== null ? left > 0 : left > 240) {
      clearInterval(timer);
      timer = null;
    }
  }, 250);
}

document.addEventListener("click", (event) => event.target.closest?.("#microphone button") && follow());
