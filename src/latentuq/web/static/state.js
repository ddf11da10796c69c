// What is in the address, so that it can be shared: everything but pictures of one's own.

import { pack, unpack } from "./pixels.js";

/** What the address says; what it does not say is left out. */
export function readAddress() {
  const found = new URLSearchParams(location.hash.slice(1)), state = {};
  for (const name of ["noise", "blur", "seed", "example"]) {
    const number = Number(found.get(name));
    if (found.has(name) && Number.isFinite(number) && number >= 0) state[name] = number;
  }
  if (found.has("clean")) state.clean = found.get("clean") !== "0";
  for (const name of ["model", "mask", "drawing"]) if (found.has(name)) state[name] = found.get(name);
  return state;
}

/** Writes the address anew, without a new entry in the history. */
export function writeAddress({ model, source, example, painter, noise, blur, clean, seed }) {
  const found = new URLSearchParams({ model });
  if (source === "example") found.set("example", example);
  if (source === "drawing") found.set("drawing", pack([...painter.image].map((each) => Math.round(15 * each)), 4));
  if (painter.mask.includes(0)) found.set("mask", pack([...painter.mask].map((each) => 1 - each), 1));
  for (const [name, value] of Object.entries({ noise, blur, seed })) found.set(name, value);
  if (!clean) found.set("clean", "0");
  history.replaceState(null, "", `#${found}`);
}

/** The mask of an address, if it is one for pictures of this size. */
export function readMask(text, count) {
  const hidden = text && unpack(text, 1, count);
  return hidden ? Uint8Array.from(hidden, (each) => 1 - each) : null;
}

/** The drawing of an address, if it is one for pictures of this size. */
export function readDrawing(text, count) {
  return text ? unpack(text, 4, count)?.map((each) => each / 15) : null;
}
