// The flip-book: samples of the posterior one after another, without end.

import { get } from "./api.js";
import { MODES, show } from "./pixels.js";

const PAUSE = 170; // Milliseconds for which a sample is shown.
const AHEAD = 64;

export class Player {
  constructor(canvas, button, name) {
    Object.assign(this, { canvas, button, name, job: null, mode: null, place: 0, timer: null });
    this.quiet = matchMedia("(prefers-reduced-motion: reduce)");
    this.wanted = !this.quiet.matches;
    this.quiet.addEventListener("change", () => this.setPlaying(!this.quiet.matches));
    button.addEventListener("click", () => this.setPlaying(!this.wanted));
  }

  /** Begins with the samples of a job, or of one of its modes. */
  async open(job, mode = null) {
    Object.assign(this, { job, mode, place: 0, pages: new Map() });
    await this.step(0);
    this.setPlaying(this.wanted);
  }

  close() {
    this.job = null;
    clearInterval(this.timer);
  }

  setPlaying(wanted) {
    this.wanted = wanted;
    this.button.textContent = wanted ? "Pause" : "Play";
    this.button.setAttribute("aria-pressed", wanted);
    clearInterval(this.timer);
    if (wanted && this.job) this.timer = setInterval(() => this.step(1), PAUSE);
  }

  async step(by) {
    const job = this.job, mode = this.mode, place = Math.max(0, this.place + by);
    if (!job) return;
    const page = await this.#page(job, mode, Math.floor(place / AHEAD)).catch(() => null);
    if (!page || job !== this.job || mode !== this.mode) return;
    this.place = place;
    this.total = page.total;
    const image = page.images[place % AHEAD], of = page.modes[place % AHEAD];
    show(this.canvas, image);
    this.canvas.style.boxShadow = `inset 0 0 0 4px ${MODES[of] ?? "transparent"}, 0 0 0 3px ${MODES[of] ?? "transparent"}`;
    const which = mode === null ? "Sample" : `Possibility ${mode + 1}:`;
    this.name.textContent = `${which} ${(place % page.total) + 1} of ${page.total}`;
    if (place % AHEAD === AHEAD / 2) this.#page(job, mode, Math.floor(place / AHEAD) + 1).catch(() => null);
  }

  #page(job, mode, number) {
    if (!this.pages.has(number)) {
      if (this.pages.size > 4) this.pages.clear();
      const only = mode === null ? "" : `&mode=${mode}`;
      this.pages.set(number, get(`/api/jobs/${job}/samples?first=${number * AHEAD}&count=${AHEAD}${only}`));
    }
    return this.pages.get(number);
  }
}
