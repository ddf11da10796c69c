// Pictures of the API, and how they are drawn.

export const MODES = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];
export const MISSING = [150, 175, 205];
const LEVELS = 254;
const HEAT = [[0, 0, 4], [31, 12, 72], [85, 15, 109], [136, 34, 106], [186, 54, 85], [227, 89, 51],
  [249, 140, 10], [249, 201, 50], [252, 255, 164]];

/** The values of a picture row by row; NaN is missing. */
export function values(picture) {
  const bytes = Uint8Array.from(atob(picture.pixels), (each) => each.charCodeAt(0));
  const span = picture.high - picture.low;
  return Float64Array.from(bytes, (each) => (each > LEVELS ? NaN : picture.low + (span * each) / LEVELS));
}

const grey = (share) => { const level = Math.round(255 * share); return [level, level, level]; };

function heat(share) {
  const place = share * (HEAT.length - 1), low = Math.min(Math.floor(place), HEAT.length - 2);
  return HEAT[low].map((each, k) => Math.round(each + (place - low) * (HEAT[low + 1][k] - each)));
}

/** Draws a picture, each pixel as one of the canvas; the browser enlarges them. */
export function show(canvas, picture, hot = false) {
  const { width, height, low, high } = picture, found = values(picture);
  Object.assign(canvas, { width, height });
  const context = canvas.getContext("2d"), image = context.createImageData(width, height);
  found.forEach((value, place) => {
    const share = Math.min(1, Math.max(0, (value - low) / (high - low || 1)));
    const colour = Number.isNaN(value) ? MISSING : (hot ? heat : grey)(share);
    image.data.set([...colour, 255], 4 * place);
  });
  context.putImageData(image, 0, 0);
  canvas.parentElement.classList.remove("stale");
}

/** Small whole numbers as text for an address, a fixed number of bits each. */
export function pack(numbers, bits) {
  const bytes = new Uint8Array(Math.ceil((numbers.length * bits) / 8));
  numbers.forEach((number, place) => {
    for (let bit = 0; bit < bits; bit++) {
      const at = place * bits + bit;
      if ((number >> bit) & 1) bytes[at >> 3] |= 1 << (at & 7);
    }
  });
  const text = btoa(String.fromCharCode(...bytes));
  return text.replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

/** The numbers that `pack` was given; null if the text is of another length or damaged. */
export function unpack(text, bits, count) {
  let bytes;
  try {
    bytes = Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (each) => each.charCodeAt(0));
  } catch {
    return null;
  }
  if (bytes.length !== Math.ceil((count * bits) / 8)) return null;
  return Array.from({ length: count }, (_, place) => {
    let number = 0;
    for (let bit = 0; bit < bits; bit++) {
      const at = place * bits + bit;
      number |= ((bytes[at >> 3] >> (at & 7)) & 1) << bit;
    }
    return number;
  });
}
