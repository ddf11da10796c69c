// The easel: a picture, and a brush that hides its pixels, by pointer or by keys.

import { MISSING } from "./pixels.js";

const CELL = 16; // Pixels of the canvas for each one of the picture.
const MOST_UNDO = 100;
const MOVES = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

export class Painter {
  /** `ended` is called after every stroke, `tell` with a sentence on where the cursor is. */
  constructor(canvas, { ended, tell, tool }) {
    Object.assign(this, { canvas, ended, tell, tool, size: 4, cursor: null, keyed: false });
    canvas.addEventListener("pointerdown", (event) => this.#down(event));
    canvas.addEventListener("pointermove", (event) => this.#move(event));
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => this.#up());
    canvas.addEventListener("pointerleave", () => { if (!this.last) { this.cursor = null; this.render(); } });
    canvas.addEventListener("keydown", (event) => this.#key(event));
    canvas.addEventListener("keyup", (event) => { if (event.key === "Shift") this.#endKeyed(); });
    canvas.addEventListener("blur", () => { this.#endKeyed(); this.cursor = null; this.render(); });
  }

  /** Puts another picture on the easel; the mask stays if it fits. */
  load(image, height, width, mask = null) {
    const fits = this.height === height && this.width === width;
    Object.assign(this, { image: Float64Array.from(image), height, width });
    this.mask = mask ?? (fits ? this.mask : new Uint8Array(height * width).fill(1));
    this.history = [];
    Object.assign(this.canvas, { width: width * CELL, height: height * CELL });
    this.render();
  }

  /** Replaces the mask as one stroke. */
  setMask(rule) {
    this.#remember();
    this.mask = Uint8Array.from(this.mask, (_, k) => (rule(Math.floor(k / this.width), k % this.width) ? 1 : 0));
    this.#changed();
  }

  clear() {
    this.#remember();
    if (this.tool().startsWith("i") || this.tool() === "rub") this.image.fill(0);
    else this.mask.fill(1);
    this.#changed();
  }

  undo() {
    const before = this.history.pop();
    if (before) {
      Object.assign(this, before);
      this.#changed();
    }
  }

  #remember() {
    this.history.push({ mask: this.mask.slice(), image: this.image.slice() });
    if (this.history.length > MOST_UNDO) this.history.shift();
  }

  #changed() {
    this.render();
    this.ended();
  }

  #place(event) {
    const box = this.canvas.getBoundingClientRect();
    return [((event.clientY - box.top) / box.height) * this.height, ((event.clientX - box.left) / box.width) * this.width];
  }

  #down(event) {
    if (event.button) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.#remember();
    this.last = this.#place(event);
    this.#line(this.last, this.last);
  }

  #move(event) {
    const place = this.#place(event);
    this.cursor = place.map(Math.floor);
    if (this.last) {
      this.#line(this.last, place);
      this.last = place;
    } else this.render();
  }

  #up() {
    if (!this.last) return;
    this.last = null;
    this.#changed();
  }

  #line(from, to) {
    const steps = Math.max(1, Math.ceil(2 * Math.hypot(to[0] - from[0], to[1] - from[1])));
    for (let step = 0; step <= steps; step++) {
      const share = step / steps;
      this.#dab(from[0] + share * (to[0] - from[0]), from[1] + share * (to[1] - from[1]));
    }
    this.render();
  }

  #dab(row, column) {
    const radius = this.size / 2, tool = this.tool();
    for (let i = Math.floor(row - radius); i <= row + radius; i++) {
      for (let j = Math.floor(column - radius); j <= column + radius; j++) {
        const off = Math.hypot(i + 0.5 - row, j + 0.5 - column), here = i * this.width + j;
        if (i < 0 || j < 0 || i >= this.height || j >= this.width) continue;
        const touched = off <= Math.max(radius, 0.71);
        if (touched && tool === "hide") this.mask[here] = 0;
        else if (touched && tool === "reveal") this.mask[here] = 1;
        else if (touched && tool === "rub") this.image[here] = 0;
        else if (touched && tool === "ink") { // Softer at its edge, in sixteen steps.
          const ink = Math.round(15 * Math.min(1, Math.max(0.2, 1.6 - (1.6 * off) / (radius + 0.5)))) / 15;
          this.image[here] = Math.max(this.image[here], ink);
        }
      }
    }
  }

  #key(event) {
    const move = MOVES[event.key], paint = event.key === " " || event.key === "Enter";
    if (event.key.toLowerCase() === "z") { event.preventDefault(); this.undo(); return; }
    if (!move && !paint) return;
    event.preventDefault();
    this.cursor ??= [Math.floor(this.height / 2), Math.floor(this.width / 2)];
    if (move) {
      this.cursor = [
        Math.min(this.height - 1, Math.max(0, this.cursor[0] + move[0])),
        Math.min(this.width - 1, Math.max(0, this.cursor[1] + move[1])),
      ];
    }
    if (paint || event.shiftKey) {
      if (!this.keyed) this.#remember();
      this.keyed = true;
      this.#dab(this.cursor[0] + 0.5, this.cursor[1] + 0.5);
    }
    this.render();
    const hidden = this.mask[this.cursor[0] * this.width + this.cursor[1]] ? "seen" : "hidden";
    this.tell(`Row ${this.cursor[0] + 1}, column ${this.cursor[1] + 1}, ${hidden}`);
    if (paint && !event.shiftKey) this.#endKeyed();
  }

  #endKeyed() {
    if (this.keyed) {
      this.keyed = false;
      this.#changed();
    }
  }

  render() {
    const context = this.canvas.getContext("2d");
    for (let row = 0; row < this.height; row++) {
      for (let column = 0; column < this.width; column++) {
        const here = row * this.width + column, value = this.image[here];
        const seen = this.mask[here] && !Number.isNaN(value);
        const level = 255 * Math.min(1, Math.max(0, Number.isNaN(value) ? 0 : value));
        const share = seen ? 0 : 0.78; // What is hidden shows through, for whoever paints.
        context.fillStyle = `rgb(${MISSING.map((each) => level + share * (each - level)).join(" ")})`;
        context.fillRect(column * CELL, row * CELL, CELL, CELL);
        if (!seen) {
          context.fillStyle = "rgb(60 85 120 / 45%)";
          for (let k = 0; k < CELL; k += 4) context.fillRect(column * CELL + k, row * CELL + CELL - 4 - k, 3, 2);
        }
      }
    }
    if (this.cursor) {
      const radius = (Math.max(this.size, 1.42) / 2) * CELL;
      context.beginPath();
      context.arc((this.cursor[1] + 0.5) * CELL, (this.cursor[0] + 0.5) * CELL, radius, 0, 7);
      for (const [width, colour] of [[5, "rgb(0 0 0 / 60%)"], [2.5, "#ffd166"]]) {
        context.lineWidth = width;
        context.strokeStyle = colour;
        context.stroke();
      }
    }
  }
}
