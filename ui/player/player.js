// The one player. `encore.player.play(url, facts)` plays a file; a take that is still being made comes as a source of
// its own through `encore.player.adopt(source)`. Whatever begins to sound silences what sounded before.
//
// A source has: url, title, voice, download, seconds, position, isPlaying, isComplete, expectedSeconds, peaks, and
// play(), pause(), seek(seconds).
(() => {
  const encore = (window.encore ??= {});
  const STEP_SECONDS = 5;
  const NUM_BARS = 160;
  // A waveform of more would cost the browser seconds; the dock then shows a line.
  const MAX_DECODED_BYTES = 30_000_000;

  const audio = new Audio();
  let dock = null;
  let source = null;
  let painted = "";
  // The share of its length at which a file that is still loading shall begin: it has no length to seek in yet.
  let beginsAt = null;

  const file = {
    url: "",
    title: "",
    voice: "",
    download: "",
    peaks: null,
    isComplete: true,
    expectedSeconds: 0,
    get seconds() {
      return Number.isFinite(audio.duration) ? audio.duration : 0;
    },
    get position() {
      return beginsAt === null ? audio.currentTime : 0;
    },
    get isPlaying() {
      return !audio.paused && !audio.ended;
    },
    // Playing may be refused, or ended by another sound before it began: that is no error of ours.
    play: () => audio.play().catch(() => {}),
    pause: () => audio.pause(),
    seek: (seconds) => (audio.currentTime = seconds),
  };

  function open(url, facts, at) {
    source?.pause();
    source = file;
    if (file.url !== url) {
      Object.assign(file, { url, title: "", voice: "", download: "", peaks: null }, facts);
      beginAt(null);
      audio.src = url;
      audio.playbackRate = audio.defaultPlaybackRate = settings.speed;
      findPeaks(url);
    }
    if (at !== null) seekTo(at);
  }

  function seekTo(share) {
    if (audio.readyState > 0) file.seek(share * file.seconds);
    else beginAt(share);
  }

  // Browsers want playing to begin with the click, so it plays from its beginning, silently, until its length is known.
  function beginAt(share) {
    beginsAt = share;
    audio.muted = share !== null;
  }

  audio.addEventListener("loadedmetadata", () => {
    if (beginsAt === null) return;
    file.seek(beginsAt * file.seconds);
    beginAt(null);
  });

  async function findPeaks(url) {
    file.peaks = drawnPeaks(url);
    if (file.peaks) return;
    try {
      const answer = await fetch(url);
      if (Number(answer.headers.get("content-length")) > MAX_DECODED_BYTES) return;
      const sound = await new OfflineAudioContext(1, 1, 24000).decodeAudioData(await answer.arrayBuffer());
      if (file.url === url) file.peaks = peaksOf([sound.getChannelData(0)], sound.length);
    } catch {
      // A line instead of a waveform; what is wrong with the file is told by playing it.
    }
  }

  // The server has drawn most waveforms already: the height of each bar, of 64.
  function drawnPeaks(url) {
    const path = document.querySelector(`svg[data-seek="${CSS.escape(url)}"] path`)?.getAttribute("d");
    const heights = path && [...path.matchAll(/v([\d.]+)h/g)].map((match) => Number(match[1]) / 64);
    return heights?.length ? heights : null;
  }

  function peaksOf(parts, length) {
    const peaks = new Array(NUM_BARS).fill(0);
    let place = 0;
    for (const part of parts)
      for (let i = 0; i < part.length; i++, place++) {
        const bar = Math.min(NUM_BARS - 1, Math.floor((place * NUM_BARS) / length));
        const level = Math.abs(part[i]);
        if (level > peaks[bar]) peaks[bar] = level;
      }
    return peaks;
  }

  const remembered = JSON.parse(localStorage.getItem("encore-player") ?? "{}");
  const settings = { speed: 1, volume: 1, ...remembered };
  audio.volume = settings.volume;
  function remember(changes) {
    Object.assign(settings, changes);
    localStorage.setItem("encore-player", JSON.stringify(settings));
  }

  encore.player = {
    get current() {
      return source;
    },
    get settings() {
      return settings;
    },
    play(url, facts = {}, at = null) {
      open(url, facts, at);
      if (at === null && audio.ended) file.seek(0);
      file.play();
      show();
    },
    // Take over a source that plays by itself.
    adopt(other) {
      if (source !== other) source?.pause();
      if (!audio.paused) audio.pause();
      source = other;
      show();
    },
    // A take that has been made: from now on its file is what is played.
    handOver(live, url, facts, { plays }) {
      if (source !== live) return;
      const at = live.seconds ? Math.min(1, live.position / live.seconds) : 0;
      open(url, facts, at >= 0.999 ? 0 : at);
      file.peaks ??= live.peaks;
      if (plays) file.play();
      show();
    },
    pause() {
      source?.pause();
      show();
    },
    toggle() {
      if (!source) return;
      if (source.isPlaying) source.pause();
      else source.play();
      show();
    },
    seek(seconds) {
      if (!source) return;
      source.seek(Math.max(0, Math.min(seconds, source.seconds)));
      show();
    },
    step(direction) {
      if (source) encore.player.seek(source.position + direction * STEP_SECONDS);
    },
    dock(element) {
      encore.words.apply(element);
      dock = element.querySelector(".dock");
      const find = (name) => dock.querySelector(`.dock-${name}`);
      find("play").addEventListener("click", encore.player.toggle);
      find("back").addEventListener("click", () => encore.player.step(-1));
      find("on").addEventListener("click", () => encore.player.step(1));
      find("speed").value = String(settings.speed);
      find("speed").addEventListener("change", (event) => {
        remember({ speed: Number(event.target.value) });
        audio.playbackRate = audio.defaultPlaybackRate = settings.speed;
      });
      const volume = find("volume").querySelector("input");
      volume.value = settings.volume;
      volume.addEventListener("input", () => {
        remember({ volume: Number(volume.value) });
        audio.volume = settings.volume;
        source?.setVolume?.(settings.volume);
      });
      const wave = find("wave");
      const seekAt = (event) => {
        const box = wave.getBoundingClientRect();
        encore.player.seek(((event.clientX - box.left) / box.width) * lengthOf(source));
      };
      wave.addEventListener("pointerdown", (event) => {
        wave.setPointerCapture(event.pointerId);
        seekAt(event);
      });
      wave.addEventListener("pointermove", (event) => event.buttons === 1 && seekAt(event));
      wave.addEventListener("keydown", (event) => {
        const to = { Home: 0, End: source?.seconds ?? 0 }[event.key];
        if (to !== undefined) encore.player.seek(to);
      });
      show();
    },
  };

  const clock = (seconds) => {
    const whole = Math.floor(seconds);
    return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
  };
  // A take that is being made is drawn against what it will probably be.
  const lengthOf = (one) => (one.isComplete ? one.seconds : Math.max(one.expectedSeconds, one.seconds * 1.05));

  function show() {
    if (!dock) return;
    dock.hidden = !source;
    // Room for it, for whatever sticks to the bottom of the page.
    document.documentElement.style.setProperty("--dock", `${dock.offsetHeight}px`);
    if (!source) return;
    const find = (name) => dock.querySelector(`.dock-${name}`);
    const text = (element, words) => element.textContent !== words && (element.textContent = words);
    const set = (element, name, value) => element.getAttribute(name) !== value && element.setAttribute(name, value);
    dock.classList.toggle("is-playing", source.isPlaying);
    set(find("play"), "aria-label", encore.words(source.isPlaying ? "player.pause" : "player.play"));
    text(find("what").firstElementChild, source.title);
    text(find("what").lastElementChild, source.voice);
    const position = clock(source.position);
    const length = clock(lengthOf(source));
    text(find("time"), source.isComplete ? `${position} / ${length}` : `${position} / ~${length}`);
    const wave = find("wave");
    set(wave, "aria-valuemax", String(Math.round(source.seconds)));
    set(wave, "aria-valuenow", String(Math.round(source.position)));
    const making = source.isComplete ? "" : `, ${encore.words("player.making")}`;
    set(wave, "aria-valuetext", encore.words("player.time", { position, length }) + making);
    find("speed").disabled = !source.isComplete;
    const download = find("download");
    download.hidden = !source.url;
    if (source.url) {
      set(download, "href", source.url);
      set(download, "download", source.download || source.url.split("/").pop());
    }
    paint(wave);
    mark();
  }

  function paint(wave) {
    const canvas = wave.firstElementChild;
    const [width, height] = [wave.clientWidth, wave.clientHeight];
    const made = source.isComplete ? 1 : Math.min(1, source.seconds / lengthOf(source) || 0);
    const played = lengthOf(source) ? source.position / lengthOf(source) : 0;
    const theme = document.body.classList.contains("dark");
    const num = source.peaks?.length ?? 0;
    // Quiet speech has a shape as well.
    const most = num ? Math.max(0.1, source.peaks.reduce((one, other) => Math.max(one, other), 0)) : 1;
    const now = [width, height, made.toFixed(3), (played * width) | 0, theme, source.url, num, !source.peaks].join();
    if (now === painted || !width) return;
    painted = now;
    const scale = window.devicePixelRatio || 1;
    Object.assign(canvas, { width: width * scale, height: height * scale });
    const pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    const style = getComputedStyle(wave);
    const colour = (name) => style.getPropertyValue(name).trim();
    const count = Math.max(24, Math.min(NUM_BARS, Math.floor(width / 4)));
    for (let bar = 0; bar < count; bar++) {
      const x = (bar * width) / count;
      const share = bar / count;
      if (share >= made) break;
      const first = Math.floor(((share / made) * num) | 0);
      const last = Math.max(first + 1, Math.ceil((((bar + 1) / count / made) * num) | 0));
      const peak = num ? Math.max(...source.peaks.slice(first, last), 0) : 0.03;
      const tall = Math.max(2, (peak / most) * height * 0.95);
      pen.fillStyle = colour(share < played ? "--sound" : "--wave");
      pen.fillRect(x, (height - tall) / 2, Math.max(1.5, width / count - 1.5), tall);
    }
    if (made < 1) hatch(pen, made * width, width, height, colour("--wave"));
    pen.fillStyle = colour("--ink");
    pen.fillRect(Math.min(width - 1.5, played * width), 2, 1.5, height - 4);
  }

  function hatch(pen, left, right, height, colour) {
    pen.save();
    pen.beginPath();
    pen.rect(left + 2, height * 0.3, right - left - 2, height * 0.4);
    pen.clip();
    pen.strokeStyle = colour;
    pen.globalAlpha = 0.6;
    for (let x = left - height; x < right + height; x += 6) {
      pen.beginPath();
      pen.moveTo(x, height);
      pen.lineTo(x + height, 0);
      pen.stroke();
    }
    pen.restore();
  }

  // Buttons and waveforms of what is being played say so, also those that were drawn since.
  function mark() {
    for (const one of document.querySelectorAll("[data-play]")) {
      const isIt = one.dataset.play === source?.url && source.isPlaying;
      if (one.classList.contains("is-playing") !== isIt) {
        one.classList.toggle("is-playing", isIt);
        one.setAttribute("aria-pressed", String(isIt));
      }
    }
    for (const one of document.querySelectorAll("svg[data-seek]")) {
      const isIt = one.dataset.seek === source?.url;
      const share = isIt && source.seconds ? source.position / source.seconds : 0;
      one.style.setProperty("--played", `${(100 * share).toFixed(1)}%`);
    }
    readAlong();
  }

  // The part of a take's text that is being spoken.
  function readAlong() {
    for (const part of document.querySelectorAll(".take [data-from]")) {
      const button = part.closest(".take").querySelector("[data-play]");
      const isIt =
        source.isPlaying &&
        button?.dataset.play === source.url &&
        source.position >= Number(part.dataset.from) &&
        source.position < Number(part.dataset.until);
      if (part.classList.contains("spoken-now") === isIt) continue;
      part.classList.toggle("spoken-now", isIt);
      const text = part.parentElement;
      if (isIt) text.scrollTop = part.offsetTop - text.offsetTop - text.clientHeight / 3;
    }
  }

  const facts = (element) => ({
    title: element.dataset.title ?? "",
    voice: element.dataset.voice ?? "",
    download: element.dataset.download ?? "",
  });

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-play]");
    if (button) {
      if (source?.url === button.dataset.play) encore.player.toggle();
      else encore.player.play(button.dataset.play, facts(button));
      return;
    }
    const wave = event.target.closest("svg[data-seek]");
    if (!wave) return;
    const box = wave.getBoundingClientRect();
    const button_of_it = document.querySelector(`[data-play="${CSS.escape(wave.dataset.seek)}"]`) ?? wave;
    encore.player.play(wave.dataset.seek, facts(button_of_it), (event.clientX - box.left) / box.width);
  });

  // What else can sound, such as the preview of a recording just made.
  document.addEventListener("play", (event) => event.target !== audio && encore.player.pause(), true);
  for (const name of ["play", "pause", "ended", "loadedmetadata", "seeked"]) audio.addEventListener(name, show);
  setInterval(() => source && (source.isPlaying || !source.isComplete) && show(), 100);
  window.addEventListener("resize", () => source && show());
})();
