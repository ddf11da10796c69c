// The page: what is chosen and painted goes to the server, and what it finds is shown.

import { fade, showAnswer, showModes, showStage } from "./answer.js";
import { ask, follow, get, post } from "./api.js";
import { Painter } from "./painter.js";
import { show, values } from "./pixels.js";
import { Player } from "./player.js";
import { Probe } from "./probe.js";
import { readAddress, readDrawing, readMask, writeAddress } from "./state.js";

const $ = (id) => document.getElementById(id);
const PRESETS = {
  half: (row, column) => column < width() / 2,
  middle: (row, column) => Math.abs(column + 0.5 - width() / 2) > width() / 4,
  lower: (row) => row < painter.height / 2,
  scatter: (row, column) => Math.abs(Math.sin(12.9898 * row + 78.233 * column) * 43758.5453) % 1 < 0.1,
};
const width = () => painter.width;
const state = { models: [], source: "example", example: 0, job: null, stop: () => {}, turn: 0, timer: 0 };
const tool = () => document.querySelector("input[name=tool]:checked").value;
const painter = new Painter($("painter"), { ended: () => changed(), tell: (text) => { $("told").textContent = text; }, tool });
const player = new Player($("flip"), $("play"), $("flip-name"));
const probe = new Probe(["flip", "data", "map", "mean", "std", "truth"].map($), $("marginal"), $("marginal-text"));

function say(text, wrong = false) {
  $("status").textContent = text;
  $("status").classList.toggle("wrong", wrong);
}

function settings() {
  const number = (id) => Number($(id).value);
  return { model: $("model").value, noise: number("noise"), blur: number("blur"), seed: number("seed"), clean: $("clean").checked };
}

/** Something is different now: the address says so, and the answer is sought anew. */
function changed(wait = 0) {
  $("undo").disabled = !painter.history.length;
  const { noise, blur } = settings();
  document.querySelector("output[for=size]").textContent = `${painter.size} px`;
  document.querySelector("output[for=noise]").textContent = `${Math.round(100 * noise)} %`;
  document.querySelector("output[for=blur]").textContent = `${blur.toFixed(1)} px`;
  writeAddress({ ...state, ...settings(), painter });
  clearTimeout(state.timer);
  state.timer = setTimeout(solve, wait);
}

function request() {
  const rows = (array) => Array.from({ length: painter.height }, (_, row) => [...array.slice(row * width(), (row + 1) * width())]);
  const picture = state.source === "example" ? { example: state.example }
    : { pixels: rows(painter.image).map((row) => row.map((each) => (Number.isNaN(each) ? null : each))) };
  const mask = painter.mask.includes(0) ? { mask: rows(painter.mask) } : {};
  return { ...settings(), ...picture, ...mask, replaces: state.job };
}

async function solve() {
  const turn = ++state.turn;
  state.stop();
  player.close();
  fade();
  for (const button of document.querySelectorAll(".keep button:not(#copy-link)")) button.disabled = true;
  showStage("");
  say("Asking the server.");
  try {
    const job = await post("/api/solve", request());
    if (turn !== state.turn) {
      ask(`/api/jobs/${job.id}`, { method: "DELETE" }).catch(() => {});
      return;
    }
    state.job = job.id;
    $("command").textContent = job.command;
    $("python").textContent = job.python;
    state.stop = follow(job.id, (name, data) => { if (turn === state.turn) hear(name, data, job.id); });
  } catch (error) {
    if (turn !== state.turn) return;
    const again = error.wait > 0;
    say(again ? `${error.message} Trying again in ${error.wait} s.` : error.message, true);
    if (again) state.timer = setTimeout(solve, 1000 * error.wait);
  }
}

function hear(name, data, id) {
  if (name === "stated") {
    showStage("stated");
    show($("data"), data.data);
  } else if (name === "found") {
    say(`${data.message} (${data.seconds.toFixed(1)} s)`);
    if (!data.modes.length) return;
    showStage(data.stage);
    if (data.stage === "map") for (const canvas of ["map", "flip"]) show($(canvas), data.modes[0]);
    if (data.stage === "map") $("flip-name").textContent = "First image";
    showModes(data.modes.slice(0, 6), data.weights, null, () => {});
  } else if (name === "done") {
    showStage("certified");
    showAnswer(data, choose);
    say(`Done in ${data.seconds.toFixed(1)} s: ${data.verdict.word}.`);
    for (const button of document.querySelectorAll(".keep button")) button.disabled = false;
    player.open(id);
    probe.open(id);
  } else say(data.detail, name === "failed");
}

/** A click on a mode shows its samples alone; a second one shows those of all again. */
function choose(mode, card) {
  const chosen = card.getAttribute("aria-pressed") !== "true";
  for (const each of document.querySelectorAll(".card")) each.setAttribute("aria-pressed", each === card && chosen);
  player.open(state.job, chosen ? mode : null);
}

const model = () => state.models.find((each) => each.name === $("model").value);

/** The examples of the chosen model, and its first picture unless another is given. */
function showModel(mask = null) {
  const { examples } = model();
  $("examples").replaceChildren(...examples.map((example, place) => {
    const button = document.createElement("button"), canvas = document.createElement("canvas");
    button.type = "button";
    button.setAttribute("aria-label", example.label);
    button.title = example.label;
    canvas.setAttribute("aria-hidden", "true");
    button.append(canvas);
    show(canvas, example.image);
    button.addEventListener("click", () => { useExample(place); changed(); });
    return button;
  }));
  useExample(Math.min(state.example, examples.length - 1), mask);
}

function useSource(source) {
  state.source = source;
  for (const label of document.querySelectorAll(".ink")) label.hidden = source !== "drawing";
  $("invert-field").hidden = source !== "file";
  document.querySelectorAll("#examples button").forEach((button, place) =>
    button.setAttribute("aria-pressed", source === "example" && place === state.example));
  if (source !== "drawing" && ["ink", "rub"].includes(tool())) document.querySelector("input[value=hide]").checked = true;
}

function useExample(place, mask = null) {
  state.example = place;
  useSource("example");
  $("clean").checked = true;
  const { image } = model().examples[place];
  painter.load(values(image), image.height, image.width, mask);
}

function useDrawing(drawing = null, mask = null) {
  const { height, width } = model();
  useSource("drawing");
  document.querySelector("input[value=ink]").checked = true;
  painter.load(drawing ?? new Float64Array(height * width), height, width, mask ?? new Uint8Array(height * width).fill(1));
}

async function useFile(file) {
  state.file = file;
  say(`Reading ${file.name}.`);
  try {
    const query = new URLSearchParams({ model: model().name, name: file.name, resize: "pad", invert: $("invert").checked });
    const { pixels } = await (await ask(`/api/images?${query}`, { method: "POST", body: file })).json();
    useSource("file");
    $("clean").checked = false;
    painter.load(pixels.flat().map((each) => each ?? NaN), pixels.length, pixels[0].length);
    changed();
  } catch (error) {
    say(error.message, true);
  }
}

async function keep(button) {
  const name = button.dataset.file, text = button.textContent;
  button.disabled = true;
  button.textContent = "Writing…";
  try {
    const blob = await (await ask(`/api/jobs/${state.job}/files/${name}`)).blob();
    const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: `latentuq-${name}` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  } catch (error) {
    say(error.message, true);
  }
  button.textContent = text;
  button.disabled = false;
}

async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    say(`${what} was copied.`);
  } catch { // Browsers allow it on this machine alone.
    document.querySelector(".recipe").open = true;
    say(`${what} could not be copied: it is below.`);
  }
}

function listen() {
  $("model").addEventListener("change", () => { state.example = 0; showModel(); changed(); });
  for (const id of ["noise", "blur", "seed"]) $(id).addEventListener("input", () => changed(150));
  $("clean").addEventListener("change", () => changed());
  $("size").addEventListener("input", () => { painter.size = Number($("size").value); document.querySelector("output[for=size]").textContent = `${painter.size} px`; painter.render(); });
  $("undo").addEventListener("click", () => painter.undo());
  $("clear").addEventListener("click", () => painter.clear());
  for (const button of document.querySelectorAll("[data-preset]")) {
    button.addEventListener("click", () => painter.setMask(PRESETS[button.dataset.preset]));
  }
  $("painter").addEventListener("keydown", (event) => {
    if (event.key.toLowerCase() !== "e") return;
    const choices = [...document.querySelectorAll("#tools label:not([hidden]) input")];
    choices[(choices.findIndex((each) => each.checked) + 1) % choices.length].checked = true;
    $("told").textContent = `Tool: ${tool()}`;
  });
  $("draw").addEventListener("click", () => { useDrawing(); changed(); $("painter").focus(); });
  $("upload").addEventListener("click", () => $("file").click());
  $("file").addEventListener("change", () => { if ($("file").files[0]) useFile($("file").files[0]); $("file").value = ""; });
  $("invert").addEventListener("change", () => useFile(state.file));
  $("painter").addEventListener("dragover", (event) => event.preventDefault());
  $("painter").addEventListener("drop", (event) => { event.preventDefault(); if (event.dataTransfer.files[0]) useFile(event.dataTransfer.files[0]); });
  $("back").addEventListener("click", () => { player.setPlaying(false); player.step(-1); });
  $("next").addEventListener("click", () => { player.setPlaying(false); player.step(1); });
  for (const button of document.querySelectorAll("[data-file]")) button.addEventListener("click", () => keep(button));
  $("copy-command").addEventListener("click", () => copy($("command").textContent, "The command"));
  $("copy-python").addEventListener("click", () => copy($("python").textContent, "The program"));
  $("copy-link").addEventListener("click", () => copy(location.href, "The link"));
  addEventListener("hashchange", () => restore());
}

/** Puts everything as the address says; what it does not say is a digit whose right half is hidden. */
function restore() {
  const found = readAddress();
  if (state.models.some((each) => each.name === found.model)) $("model").value = found.model;
  for (const name of ["noise", "blur", "seed"]) if (name in found) $(name).value = found[name];
  const { height, width } = model(), count = height * width;
  const drawing = readDrawing(found.drawing, count), mask = readMask(found.mask, count);
  state.example = found.example ?? (drawing ? 0 : Math.min(6, model().examples.length - 1));
  showModel(mask ?? new Uint8Array(count).fill(1));
  if (drawing) useDrawing(drawing, mask);
  if ("clean" in found) $("clean").checked = found.clean;
  if (location.hash.length > 1) changed();
  else painter.setMask(PRESETS.middle);
}

async function start() {
  listen();
  player.setPlaying(player.wanted);
  say("The first image takes a moment: programs are being made ready.");
  try {
    const { default: first, models } = await get("/api/models");
    state.models = models;
    $("model").replaceChildren(...models.map((each) => {
      const checked = each.check ? `checked: ${each.check}` : "not checked";
      return new Option(`${each.name}, ${each.width} × ${each.height}, ${checked}`, each.name);
    }));
    $("model").value = first;
    restore();
  } catch (error) {
    say(error.message, true);
  }
}

start();
