// Plays the chunks of a take while they come in. Gradio calls this once with `element`, `props` and `watch`;
// what `props.value` holds is described at LiveWindow in live_audio.py.

// Sound to have in hand before playing. Doubled whenever it runs out, so that a machine slower than listening
// makes a few long pauses instead of many short ones.
const FIRST_LEAD_SECONDS = 0.25;
const LONGEST_LEAD_SECONDS = 30;

let context = null; // one per sample rate: no resampling, no clicks between chunks
let speech = null;
let numTaken = 0;
let waiting = []; // decoded, not yet scheduled
let playing = new Set();
let nextTime = 0;
let lead = FIRST_LEAD_SECONDS;
let isComplete = false;
let isSilenced = false;

function say(text) {
  const line = element.querySelector("p");
  if (line && line.textContent !== text) line.textContent = text;
}

function decode(base64) {
  const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  const integers = new DataView(bytes.buffer);
  const samples = new Float32Array(bytes.length / 2);
  for (let i = 0; i < samples.length; i++) samples[i] = integers.getInt16(2 * i, true) / 32767;
  return samples;
}

function silence() {
  isSilenced = true;
  waiting = [];
  for (const source of playing) source.stop();
  playing.clear();
  say("");
}

function begin(value) {
  silence();
  speech = value.speech;
  numTaken = 0;
  nextTime = 0;
  lead = FIRST_LEAD_SECONDS;
  isSilenced = false;
  if (context && context.sampleRate !== value.sample_rate) {
    context.close();
    context = null;
  }
  context = context || new AudioContext({ sampleRate: value.sample_rate });
  // Allowed because the person has just pressed a button.
  context.resume();
}

function schedule() {
  const inHand = waiting.reduce((sum, samples) => sum + samples.length, 0) / context.sampleRate;
  const hasRunOut = nextTime <= context.currentTime;
  if (hasRunOut && inHand < lead && !isComplete) return;
  if (hasRunOut && waiting.length) {
    if (nextTime > 0) lead = Math.min(2 * lead, LONGEST_LEAD_SECONDS);
    nextTime = context.currentTime + 0.05;
  }
  for (const samples of waiting) {
    const buffer = context.createBuffer(1, samples.length, context.sampleRate);
    buffer.copyToChannel(samples, 0);
    const source = context.createBufferSource();
    source.buffer = buffer;
    source.connect(context.destination);
    source.onended = () => {
      playing.delete(source);
      if (!playing.size && isComplete) say("");
    };
    source.start(nextTime);
    playing.add(source);
    nextTime += buffer.duration;
  }
  waiting = [];
  if (playing.size) say(isComplete ? "Playing." : "Playing while it is made.");
}

watch("value", () => {
  const value = props.value;
  if (!value || !value.speech) return;
  if (value.speech !== speech) begin(value);
  const chunks = value.chunks.split(",").slice(0, -1);
  const fresh = chunks.slice(Math.max(0, numTaken - value.first));
  numTaken = value.first + chunks.length;
  isComplete = value.is_complete;
  if (isSilenced) return;
  waiting.push(...fresh.filter((chunk) => chunk).map(decode));
  schedule();
});

document.addEventListener("click", (event) => {
  if (event.target.closest("#STOP_BUTTON_ID")) silence();
});
// Two voices at once help nobody: a take played from the list ends the live one.
document.addEventListener("play", silence, true);
