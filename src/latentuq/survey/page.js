// The table of all images: sorted by any column, filtered by status and text, some rows at a time.
(() => {
  "use strict";
  const STEP = 200;
  const { kinds, rows } = JSON.parse(document.getElementById("data").textContent);
  const STATUS = kinds.indexOf("status");
  const texts = [0, ...kinds.keys()].filter((column) => !column || kinds[column] === "text");
  const haystacks = new Map(
    rows.map((row) => [row, texts.map((column) => row[column]).join(" ").toLowerCase()]),
  );
  const filters = document.getElementById("filters");
  const more = document.getElementById("more");
  const body = document.querySelector("#images tbody");
  const heads = [...document.querySelectorAll("#images th")];
  let sorted = rows;
  let found = rows;

  const small = { minimumSignificantDigits: 3, maximumSignificantDigits: 3 };
  const format = (value) =>
    value.toLocaleString("en", Math.abs(value) < 1000 ? small : { maximumFractionDigits: 0 });
  const shown = {
    text: (value) => value,
    status: (value) => value,
    whole: (value) => String(value),
    number: (value) => format(value).replace("-", "−"),
    share: (value) => (value > 0.9995 && value < 1 ? "> 99.9 %" : `${(100 * value).toFixed(1)} %`),
    p: (value) => (value < 0.001 ? "< 0.001" : value > 0.99 ? "> 0.99" : value.toFixed(3)),
  };

  const addRows = () => {
    const from = body.rows.length;
    const parts = found.slice(from, from + STEP).map((row) => {
      const line = document.createElement("tr");
      row.forEach((value, column) => {
        const cell = line.insertCell();
        cell.className = kinds[column];
        cell.textContent = value === null ? "–" : shown[kinds[column]](value);
      });
      line.cells[STATUS].dataset.status = row[STATUS];
      return line;
    });
    body.append(...parts);
    const count = body.rows.length;
    more.hidden = count === found.length;
    filters.querySelector("output").textContent =
      `${count.toLocaleString("en")} of ${found.length.toLocaleString("en")} shown`;
  };

  const show = () => {
    const status = filters.elements.status.value;
    const words = filters.elements.text.value.toLowerCase().split(/\s+/);
    found = sorted.filter(
      (row) =>
        (!status || row[STATUS] === status) &&
        words.every((word) => haystacks.get(row).includes(word)),
    );
    body.replaceChildren();
    addRows();
  };

  const sortBy = (column) => {
    const isText = ["text", "status"].includes(kinds[column]);
    const was = heads[column].ariaSort;
    const up = was === "none" ? isText || column === 0 : was === "descending";
    heads.forEach((head) => head.setAttribute("aria-sort", "none"));
    heads[column].setAttribute("aria-sort", up ? "ascending" : "descending");
    const compare = isText
      ? new Intl.Collator("en", { numeric: true }).compare
      : (one, other) => one - other;
    // What is not known comes last either way.
    const missing = (row) => row[column] === null || row[column] === "";
    sorted = [...rows].sort(
      (one, other) =>
        missing(one) - missing(other) ||
        (missing(one) ? 0 : (up ? 1 : -1) * compare(one[column], other[column])),
    );
    show();
  };

  heads.forEach((head, column) =>
    head.querySelector("button").addEventListener("click", () => sortBy(column)),
  );
  more.addEventListener("click", addRows);
  filters.addEventListener("input", show);
  filters.addEventListener("submit", (event) => event.preventDefault());
  show();
})();
