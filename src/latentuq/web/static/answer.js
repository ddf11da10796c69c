// The answer as it comes: first image, modes, weights, and how far to trust it.

import { show } from "./pixels.js";

const $ = (id) => document.getElementById(id);
const STAGES = ["stated", "map", "modes", "certified"];
const LATER = ["flip", "data", "map", "mean", "std", "truth"];

const percent = (share, digits = 1) => `${(100 * share).toFixed(digits)} %`;

function make(tag, text = "", name = "") {
  const element = document.createElement(tag);
  element.textContent = text;
  if (name) element.className = name;
  return element;
}

export function showStage(stage) {
  const reached = STAGES.indexOf(stage === "fitted" ? "modes" : stage);
  document.querySelectorAll("#stages li").forEach((item, place) => item.classList.toggle("done", place <= reached));
}

/** Everything shown is of the picture before: it fades until there is something new. */
export function fade() {
  for (const id of LATER) $(id).parentElement.classList.add("stale");
  $("cards").classList.add("stale");
  $("trust").classList.add("stale");
}

/** The cards of the modes, with weights once these are known. */
export function showModes(images, weights, details, choose) {
  const cards = images.map((image, place) => {
    const card = make("button", "", `card card${place % 6}`);
    const weight = weights ? percent(weights[place]) : "…";
    card.type = "button";
    card.setAttribute("aria-pressed", "false");
    for (const each of [image, details?.[place].std].filter(Boolean)) {
      const holder = make("span"), canvas = make("canvas");
      canvas.setAttribute("aria-hidden", "true");
      holder.append(canvas);
      holder.style.gridColumn = "auto";
      show(canvas, each, each !== image);
      card.append(holder);
    }
    const line = make("span"), bar = make("span", "", "bar");
    line.append(make("b", weight));
    if (details) line.append(make("small", ` ± ${percent(details[place].weight_error)}`));
    bar.append(make("i"));
    bar.style.setProperty("--share", `${100 * (weights?.[place] ?? 0)}%`);
    card.append(line, bar);
    const notes = details?.[place].deepest ? "the most probable point" : "";
    card.append(make("span", notes, "note"));
    card.setAttribute("aria-label", `Possibility ${place + 1}, ${weight}${notes ? `, ${notes}` : ""}: show its samples`);
    if (details) card.addEventListener("click", () => choose(place, card));
    else card.disabled = true;
    return card;
  });
  $("cards").replaceChildren(...cards);
  $("cards").classList.remove("stale");
}

/** The whole answer. */
export function showAnswer(answer, choose) {
  show($("data"), answer.data);
  show($("map"), answer.most_probable);
  show($("mean"), answer.mean);
  show($("std"), answer.std, true);
  $("truth-figure").hidden = !answer.truth;
  if (answer.truth) show($("truth"), answer.truth);
  showModes(answer.modes.map((mode) => mode.image), answer.modes.map((mode) => mode.weight), answer.modes, choose);
  if (answer.rest > 5e-4) $("cards").append(make("small", `All others together: ${percent(answer.rest, 2)}`));
  showTrust(answer);
}

function showTrust({ verdict, numbers, learned, notes, comparison }) {
  $("trust").hidden = false;
  $("trust").className = `trust ${verdict.word}`;
  $("word").textContent = verdict.word;
  const why = verdict.text.slice(verdict.word.length + 2);
  $("sentence").textContent = why.charAt(0).toUpperCase() + why.slice(1);
  $("marks").replaceChildren(...verdict.marks.map((mark) => {
    const item = make("li", "", mark.standing);
    item.append(make("b", mark.question), make("em", mark.answer), make("span", mark.details));
    return item;
  }));
  $("advice").replaceChildren(...verdict.advice.map((each) => make("p", `→ ${each}`)));
  $("learned").textContent = [learned, comparison && `Beside the truth: ${comparison}`, ...notes].filter(Boolean).join(" ");
  $("numbers").tBodies[0].replaceChildren(...Object.entries(numbers).map(([name, value]) => {
    const row = make("tr"), head = make("th", name);
    head.scope = "row";
    row.append(head, make("td", value));
    return row;
  }));
}
