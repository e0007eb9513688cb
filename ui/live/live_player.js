// Plays the chunks of a take while they come in, as a source of the page's player. Gradio calls this once with
// `element`, `props` and `watch`; what `props.value` holds is described at LiveWindow in live_audio.py.

// Sound to have in hand before playing: what the server tells by the measured speed of its engine, and by how much
// windows came unevenly in the take before, which only the page knows; before the first take as long as a busy machine
// takes. Should it run out all the same, the next lead is twice the last: a few long pauses instead of many short ones.
const UNMEASURED_SECONDS = 0.25;
const LEAST_WINDOWS = 8;
const LONGEST_LEAD_SECONDS = 30;
// As much can be sought in while the take is made; its file has all of it.
const KEPT_SECONDS = 1200;
const PEAK_SECONDS = 0.05;

let context = null; // one per sample rate: no resampling, no clicks between chunks
let gain = null;
let speech = null;
let numTaken = 0;
let waiting = []; // not yet scheduled
let playing = new Set();
let nextTime = 0;
let told = 0; // the server's part of the lead
let uneven = UNMEASURED_SECONDS; // the page's part
let least = 0; // what the lead must be after it was too short
let delays = []; // of this take's windows, in seconds, all more by the same unknown time
let isSilenced = false;
let made = []; // {at, samples}: what can be played again
let parts = []; // {when, at, seconds}: what was scheduled, for the position
let reached = 0; // where in the take what is scheduled ends

const live = {
  url: "",
  title: "",
  voice: "",
  download: "",
  seconds: 0,
  expectedSeconds: 0,
  isComplete: false,
  peaks: [],
  get position() {
    while (parts.length > 1 && parts[1].when <= context.currentTime) parts.shift();
    if (!parts.length) return reached;
    const { when, at, seconds } = parts[0];
    return at + Math.max(0, Math.min(seconds, context.currentTime - when));
  },
  get isPlaying() {
    return !isSilenced && context?.state === "running" && (playing.size > 0 || !live.isComplete);
  },
  play() {
    if (isSilenced || (live.isComplete && !playing.size)) {
      isSilenced = false;
      live.seek(live.isComplete ? 0 : live.position);
    }
    context.resume();
  },
  pause: () => context?.suspend(),
  seek(seconds) {
    isSilenced = false;
    for (const source of playing) stop(source);
    playing.clear();
    parts = [];
    nextTime = 0;
    waiting = [];
    reached = Math.max(made[0]?.at ?? 0, seconds);
    for (const { at, samples } of made) {
      const skipped = Math.max(0, Math.round((reached - at) * context.sampleRate));
      if (skipped < samples.length) waiting.push(samples.subarray(skipped));
    }
    schedule();
  },
  setVolume: (volume) => gain && (gain.gain.value = volume),
};

function decode(base64) {
  const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  const integers = new DataView(bytes.buffer);
  const samples = new Float32Array(bytes.length / 2);
  for (let i = 0; i < samples.length; i++) samples[i] = integers.getInt16(2 * i, true) / 32767;
  return samples;
}

function stop(source) {
  source.onended = null;
  source.stop();
}

function silence() {
  isSilenced = true;
  waiting = [];
  for (const source of playing) stop(source);
  playing.clear();
}

function begin(value) {
  silence();
  speech = value.speech;
  numTaken = 0;
  nextTime = 0;
  if (delays.length >= LEAST_WINDOWS) uneven = Math.max(...delays) - Math.min(...delays);
  [told, least, delays] = [0, 0, []];
  isSilenced = false;
  [made, parts, reached] = [[], [], 0];
  Object.assign(live, { url: "", seconds: 0, isComplete: false, peaks: [], title: value.title, voice: value.voice });
  if (context && context.sampleRate !== value.sample_rate) {
    context.close();
    context = null;
  }
  if (!context) {
    context = new AudioContext({ sampleRate: value.sample_rate });
    gain = context.createGain();
    gain.connect(context.destination);
  }
  gain.gain.value = encore.player.settings.volume;
  // Allowed because the person has just pressed a button.
  context.resume();
  encore.player.adopt(live);
}

function keep(samples) {
  made.push({ at: live.seconds, samples });
  const size = Math.round(PEAK_SECONDS * context.sampleRate);
  for (let i = 0; i < samples.length; i += size)
    live.peaks.push(samples.subarray(i, i + size).reduce((most, sample) => Math.max(most, Math.abs(sample)), 0));
  live.seconds += samples.length / context.sampleRate;
  while (live.seconds - made[0].at > KEPT_SECONDS) made.shift();
}

function schedule() {
  const inHand = waiting.reduce((sum, samples) => sum + samples.length, 0) / context.sampleRate;
  const hasRunOut = nextTime <= context.currentTime;
  const lead = Math.min(Math.max(told + uneven, least), LONGEST_LEAD_SECONDS);
  if (hasRunOut && inHand < lead && !live.isComplete) return;
  if (hasRunOut && waiting.length) {
    if (nextTime > 0) least = 2 * lead;
    nextTime = context.currentTime + 0.05;
  }
  for (const samples of waiting) {
    const buffer = context.createBuffer(1, samples.length, context.sampleRate);
    buffer.copyToChannel(samples, 0);
    const source = context.createBufferSource();
    source.buffer = buffer;
    source.connect(gain);
    source.onended = () => {
      playing.delete(source);
      handOver();
    };
    source.start(nextTime);
    playing.add(source);
    parts.push({ when: nextTime, at: reached, seconds: buffer.duration });
    nextTime += buffer.duration;
    reached += buffer.duration;
  }
  waiting = [];
}

// Once it has been heard to its end, the file takes its place: for speed, for another time, for the download.
function handOver() {
  if (live.url && live.isComplete && !playing.size) {
    const { title, voice, download } = live;
    encore.player.handOver(live, live.url, { title, voice, download }, { plays: false });
    made = [];
  }
}

watch("value", () => {
  const value = props.value;
  if (!value || !value.speech) return;
  if (value.speech !== speech) begin(value);
  const chunks = value.chunks.split(",").slice(0, -1);
  const fresh = chunks.slice(Math.max(0, numTaken - value.first)).filter((chunk) => chunk).map(decode);
  numTaken = value.first + chunks.length;
  told = value.lead_seconds ?? 0;
  if (fresh.length && !value.is_complete) delays.push(performance.now() / 1000 - value.sent_seconds);
  for (const samples of fresh) keep(samples);
  Object.assign(live, { isComplete: value.is_complete, expectedSeconds: value.expected_seconds });
  if (value.url) Object.assign(live, { url: value.url, title: value.title, download: value.download });
  if (!isSilenced) {
    waiting.push(...fresh);
    schedule();
  }
  handOver();
});

document.addEventListener("click", (event) => {
  if (event.target.closest("#STOP_BUTTON_ID")) silence();
});
