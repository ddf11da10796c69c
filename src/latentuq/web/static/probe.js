// Pointing at a pixel: what it could be, mode by mode.

import { get } from "./api.js";
import { MODES } from "./pixels.js";

const MOVES = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

export class Probe {
  /** Watches canvases that show images of one size; `chart` and `text` tell what was found. */
  constructor(canvases, chart, text) {
    Object.assign(this, { chart, text, job: null, wanted: null, busy: false });
    for (const canvas of canvases) {
      canvas.classList.add("probed");
      canvas.addEventListener("pointermove", (event) => this.point(canvas, event));
      canvas.addEventListener("pointerdown", (event) => this.point(canvas, event));
      canvas.addEventListener("keydown", (event) => this.#key(canvas, event));
    }
  }

  open(job) {
    Object.assign(this, { job, known: new Map() });
    if (this.wanted) this.#find();
  }

  point(canvas, event) {
    const box = canvas.getBoundingClientRect();
    const row = Math.floor(((event.clientY - box.top) / box.height) * canvas.height);
    const column = Math.floor(((event.clientX - box.left) / box.width) * canvas.width);
    this.#choose(canvas, row, column);
  }

  #key(canvas, event) {
    const move = MOVES[event.key];
    if (!move) return;
    event.preventDefault();
    const [row, column] = this.wanted ?? [canvas.height >> 1, canvas.width >> 1];
    this.#choose(canvas, row + move[0], column + move[1]);
  }

  #choose(canvas, row, column) {
    this.wanted = [Math.min(canvas.height - 1, Math.max(0, row)), Math.min(canvas.width - 1, Math.max(0, column))];
    this.#find();
  }

  async #find() {
    if (this.busy || !this.job) return;
    this.busy = true;
    const [row, column] = this.wanted, job = this.job, place = `${row}/${column}`;
    try {
      if (!this.known.has(place)) this.known.set(place, await get(`/api/jobs/${job}/pixels/${place}`));
      if (job === this.job) this.draw(this.known.get(place));
    } catch (error) {
      this.text.textContent = error.message;
    }
    this.busy = false;
    if (this.wanted[0] !== row || this.wanted[1] !== column) this.#find();
  }

  draw(marginal) {
    const { chart } = this, size = 240, bins = marginal.edges.length - 1;
    Object.assign(chart, { width: size, height: size });
    const context = chart.getContext("2d"), style = getComputedStyle(document.body);
    const totals = Array.from({ length: bins }, (_, bin) => marginal.shares.reduce((sum, each) => sum + each[bin], 0));
    const scale = (size - 44) / Math.max(...totals), wide = (size - 20) / bins;
    totals.forEach((_, bin) => {
      let low = size - 26;
      marginal.shares.forEach((share, mode) => {
        const tall = share[bin] * scale;
        context.fillStyle = mode === marginal.shares.length - 1 ? "#8a8a8a" : MODES[mode];
        context.fillRect(10 + bin * wide, low - tall, wide - 1, tall);
        low -= tall;
      });
    });
    const first = marginal.edges[0], span = marginal.edges[bins] - first;
    const across = (value) => 10 + ((value - first) / span) * (size - 20);
    context.fillStyle = style.color;
    context.fillRect(10, size - 26, size - 20, 1.5);
    context.fillRect(across(marginal.low), size - 26, across(marginal.high) - across(marginal.low), 5);
    context.font = "18px system-ui, sans-serif";
    for (const [value, name, align] of [[0, "black", "left"], [1, "white", "right"]]) {
      context.textAlign = align;
      context.fillText(name, across(value), size - 4);
    }
    const show = (value) => value.toFixed(2).replace("-", "−");
    this.text.textContent = `Row ${marginal.row + 1}, column ${marginal.column + 1}: ${show(marginal.low)} to`
      + ` ${show(marginal.high)} (90 %), mean ${show(marginal.mean)}`;
  }
}
