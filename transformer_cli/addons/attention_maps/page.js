"use strict";

// Data of the page. Each kind of attention has labels of its rows (queries) and columns (keys).
const MAPS = JSON.parse(document.getElementById("maps").textContent);
const EXPLANATION = JSON.parse(document.getElementById("explanation").textContent); // null: no steps
const KINDS = {
  encoder: {
    name: "Encoder self-attention", rows: MAPS.source, columns: MAPS.source,
    left: "Query: source token", right: "Key: source token",
    how: "Every source token attends to the whole source sentence.",
  },
  decoder: {
    name: "Decoder self-attention", rows: MAPS.read, columns: MAPS.read,
    left: "Query: decoder input", right: "Key: decoder input",
    how: "Every input token of the decoder attends to itself and to the tokens before it.",
  },
  cross: {
    name: "Cross-attention", rows: MAPS.written, columns: MAPS.source,
    left: "Query: predicted token", right: "Key: source token",
    how: "The position that predicts a token attends to the source sentence.",
  },
};
const ROW = 24; // height of a row in the lines' own coordinates
const FAINTEST = 0.01; // lines with less weight are not drawn
const LEVELS = 20; // steps of a line's opacity and width; numbers are exact
const PAPER = 700; // width of a printed page, in pixels, that both A4 and Letter have
const PER_ROW = 8; // small multiples in a row, and number of colours
const DASHES = ["none", "6 3", "2 2", "9 3 2 3"]; // for the first eight heads, the next eight, …

const state = {
  view: "head", kind: "encoder", merged: false,
  layer: null, // null: the reader has chosen none, and the one with the strongest links is shown
  heads: null, // of the head view: those that are shown; null: those with the strongest links
  head: "mean", // of the matrix
  query: 0, key: "", // of the view of one token; "" is the strongest key of each head
};
let pinned = null; // a token of the head view, as {side, index}

const byId = (id) => document.getElementById(id);

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function svgElement(name, attributes) {
  const made = document.createElementNS(byId("lines").namespaceURI, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

// --- Weights -------------------------------------------------------------------------------------------------------

// Weights of a kind: {Y layers, H heads, Q rows, K columns, data}.
function unpack(kind) {
  const bytes = Uint8Array.from(atob(byId(kind).textContent), (letter) => letter.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  const data = Float32Array.from({ length: bytes.length / 4 }, (_, i) => view.getFloat32(4 * i, true));
  const [Y, H, Q, K] = MAPS.shapes[kind];
  return { Y, H, Q, K, data };
}

// Tokens that belong to no word: begin and end of a sentence, and the group of omitted tokens.
const isSpecial = (label) => ["<s>", "</s>", "…"].includes(label);

// Index of each token's word. ▁ begins a word.
function wordOf(labels) {
  let word = -1;
  return labels.map((label, i) => {
    const begins = label.startsWith("▁") || isSpecial(label) || isSpecial(labels[i - 1] ?? "<s>");
    return begins ? ++word : word;
  });
}

function mergeLabels(labels) {
  const words = [];
  wordOf(labels).forEach((word, i) => { words[word] = (words[word] ?? "") + labels[i]; });
  return words.map((word) => decodeBytes(word.replace(/^▁(?=.)/u, "")));
}

// Byte fallback of SentencePiece: <0xE2><0x82><0xAC>.
function decodeBytes(word) {
  return word.replace(/(<0x[0-9A-F]{2}>)+/g, (bytes) =>
    new TextDecoder().decode(Uint8Array.from(bytes.match(/[0-9A-F]{2}(?=>)/g), (digits) => parseInt(digits, 16))));
}

// Sum over the keys and mean over the queries of each word: rows still sum to 1.
function mergeWeights({ Y, H, Q, K, data }, rows, columns) {
  const rowWord = wordOf(rows), columnWord = wordOf(columns);
  const mergedQ = rowWord.at(-1) + 1, mergedK = columnWord.at(-1) + 1;
  const nTokens = new Array(mergedQ).fill(0);
  for (const word of rowWord) nTokens[word]++;
  const merged = new Float64Array(Y * H * mergedQ * mergedK);
  for (let yh = 0; yh < Y * H; yh++)
    for (let q = 0; q < Q; q++)
      for (let k = 0; k < K; k++)
        merged[(yh * mergedQ + rowWord[q]) * mergedK + columnWord[k]] +=
          data[(yh * Q + q) * K + k] / nTokens[rowWord[q]];
  return { Y, H, Q: mergedQ, K: mergedK, data: merged };
}

const prepared = new Map();

// {rows, columns, Y, H, Q, K, data} of the selected kind.
function currentWeights() {
  const key = state.kind + (state.merged ? " merged" : "");
  if (!prepared.has(key)) {
    const { rows, columns } = KINDS[state.kind];
    const weights = state.merged
      ? { ...mergeWeights(unpack(state.kind), rows, columns), rows: mergeLabels(rows), columns: mergeLabels(columns) }
      : { ...unpack(state.kind), rows, columns };
    prepared.set(key, weights);
  }
  return prepared.get(key);
}

function weightAt(layer, head, row, column) {
  const { H, Q, K, data } = currentWeights();
  return data[((layer * H + head) * Q + row) * K + column];
}

function meanAt(layer, heads, row, column) {
  return heads.reduce((sum, head) => sum + weightAt(layer, head, row, column), 0) / Math.max(heads.length, 1);
}

const range = (length) => Array.from({ length }, (_, i) => i);

// The shortest decimal number that is this float32 and no other.
function exact(weight) {
  const value = Math.fround(weight);
  for (let digits = 1; digits < 9; digits++)
    if (Math.fround(Number(value.toPrecision(digits))) === value) return String(Number(value.toPrecision(digits)));
  return String(Number(value.toPrecision(9)));
}

const rounded = (weight) => weight.toFixed(2);

// Indices of the largest weights, largest first; of equals, the earlier.
const strongest = (weights, count) =>
  range(weights.length).sort((a, b) => weights[b] - weights[a] || a - b).slice(0, count);

// --- Elements of the page ------------------------------------------------------------------------------------------

// A token as text: cut by CSS where it is long, whole in its title.
function labelOf(text) {
  const label = element("bdi", { className: "label", title: text });
  if (text.startsWith("▁") && text.length > 1)
    label.append(element("span", { className: "space", textContent: "▁" }), text.slice(1));
  else label.append(text);
  return label;
}

const hint = (text) => element("span", { className: "hint", textContent: text });

function option(type, name, value, content, checked) {
  const input = element("input", { type, name, value, checked });
  return element("label", {}, input, element("span", {}, ...content));
}

function headMark(head) {
  const mark = svgElement("svg", { viewBox: "0 0 18 10", class: "mark", "aria-hidden": "true" });
  mark.append(svgElement("path", {
    d: "M0 5H18", "data-colour": head % PER_ROW, "stroke-dasharray": dashOf(head), "stroke-width": 4,
  }));
  return mark;
}

const dashOf = (head) => DASHES[Math.floor(head / PER_ROW) % DASHES.length];

// Roving tabindex: Tab reaches one of several elements; arrow keys move among them.
function rove(elements, active) {
  elements.forEach((one, i) => { one.tabIndex = i === active ? 0 : -1; });
}

function moveTo(elements, index) {
  if (!elements[index]) return;
  rove(elements, index);
  elements[index].focus();
}

// --- Controls ------------------------------------------------------------------------------------------------------

function buildPickers() {
  const { Y, H } = currentWeights();
  if (state.layer >= Y) state.layer = null;
  if (state.heads?.some((head) => head >= H)) state.heads = null;
  if (state.head !== "mean" && state.head >= H) state.head = "mean";
  byId("layers").replaceChildren(
    ...range(Y).map((layer) => option("radio", "layer", layer, [String(layer + 1)], layer === layerShown())));
  byId("heads").replaceChildren(
    ...range(H).map((head) =>
      option("checkbox", "heads", head, [headMark(head), String(head + 1)], headsShown().includes(head))));
  byId("head").replaceChildren(
    option("radio", "head", "mean", ["Mean"], state.head === "mean"),
    ...range(H).map((head) => option("radio", "head", head, [String(head + 1)], state.head === head)));
}

function buildTokens() {
  const { rows, columns } = currentWeights();
  fillColumn("left", rows);
  fillColumn("right", columns);
  pinned = null;
  state.query = Math.min(state.query, rows.length - 1);
  state.key = "";
  byId("query").replaceChildren(
    ...rows.map((text, i) => option("radio", "query", i, [labelOf(text)], i === state.query)));
  byId("key").replaceChildren(
    element("option", { value: "", textContent: "the strongest of each head" }),
    ...columns.map((text, i) => element("option", { value: i, textContent: `${text} (${i + 1})` })));
}

function fillColumn(side, labels) {
  const buttons = labels.map((text, index) => {
    const name = `${text}, ${index + 1} of ${labels.length}`;
    const number = element("span", { className: "number" });
    const button = element("button", { type: "button", ariaLabel: name }, labelOf(text), number);
    button.setAttribute("aria-pressed", "false");
    button.dataset.side = side;
    button.dataset.index = index;
    return button;
  });
  rove(buttons, 0);
  byId(side).replaceChildren(...buttons.map((button) => element("li", {}, button)));
}

const tokensOf = (side) => [...byId(side).querySelectorAll("button")];

function onControl({ target }) {
  const { name, value } = target;
  if (name === "view") state.view = value;
  if (name === "kind") state.kind = value;
  if (name === "merged") state.merged = target.checked;
  if (name === "layer") state.layer = Number(value);
  if (name === "heads") state.heads = checkedHeads();
  if (name === "head") state.head = value === "mean" ? value : Number(value);
  if (name === "kind") buildPickers();
  if (name === "layer") checkHeads();
  if (name === "kind" || name === "merged") buildTokens();
  draw();
}

function showStrongest() {
  state.layer = state.heads = null;
  buildPickers();
  draw();
}

const headInputs = () => [...byId("heads").querySelectorAll("input")];
const checkedHeads = () => headInputs().filter((input) => input.checked).map((input) => Number(input.value));

function checkHeads() {
  for (const input of headInputs()) input.checked = headsShown().includes(Number(input.value));
}

function setAllHeads(on) {
  state.heads = on ? range(currentWeights().H) : [];
  checkHeads();
  draw();
}

// --- Drawing -------------------------------------------------------------------------------------------------------

const layerShown = () => state.layer ?? MAPS.opening[state.kind].layer;
const headsShown = () => state.heads ?? MAPS.opening[state.kind].heads[layerShown()];

function headsNamed() {
  const heads = headsShown();
  if (heads.length === currentWeights().H) return `all ${heads.length} heads`;
  if (!heads.length) return "no head";
  return `head${heads.length > 1 ? "s" : ""} ${heads.map((head) => head + 1).join(", ")}`;
}

function draw() {
  const { name, how } = KINDS[state.kind];
  const { Y, H } = currentWeights();
  const isSteps = state.view === "steps";
  for (const view of ["head", "matrix", "token", "steps"]) byId(`${view}-view`).hidden = view !== state.view;
  byId("kind-picker").hidden = byId("token-picker").hidden = isSteps;
  byId("layer-picker").hidden = isSteps || state.view === "token";
  byId("heads-picker").hidden = state.view !== "head";
  byId("head-picker").hidden = state.view !== "matrix";
  const layer = `layer ${layerShown() + 1} of ${Y}`;
  const head = state.head === "mean" ? `mean of ${H} heads` : `head ${state.head + 1}`;
  byId("what").textContent = {
    head: () => `${name}, ${layer}, ${headsNamed()}`,
    matrix: () => `${name}, ${layer}, ${head}`,
    token: () => `${name}: one token in every layer and head`,
    steps: () => (EXPLANATION.hypotheses
      ? "What comes out, step by step"
      : "The given translation, step by step"),
  }[state.view]();
  byId("how").textContent = isSteps ? stepsHow() : `${how} ${{
    head: "A line is a weight: the stronger, the darker and thicker. A colour is a head. "
      + `Lines under ${FAINTEST} are not drawn.`,
    matrix: "A row is a query, a column a key; a row sums to 1.",
    token: "A picture is a head, a bar a key token in the order of the sentence, its height the weight from 0 to 1.",
  }[state.view]}`;
  document.body.dataset.view = state.view;
  ({ head: drawHeads, matrix: drawMatrix, token: drawTokenView, steps: drawSteps })[state.view]();
}

// --- Head view: two columns of tokens, and lines -------------------------------------------------------------------

function drawHeads() {
  const { Q, K } = currentWeights();
  byId("left-title").textContent = KINDS[state.kind].left;
  byId("right-title").textContent = KINDS[state.kind].right;
  byId("stage").classList.toggle("long", Math.max(Q, K) > 32);
  byId("lines").setAttribute("viewBox", `0 0 100 ${ROW * Math.max(Q, K)}`);
  byId("lines").style.setProperty("--rows", Math.max(Q, K));
  drawToken(pinned);
}

// Lines, numbers and details of one token {side, index}, or the lines of all for null.
function drawToken(token) {
  const heads = headsShown();
  byId("lines").replaceChildren(...linePaths(heads, token));
  byId("stage").dataset.token = token ? `${token.side} ${token.index}` : "";
  for (const side of ["left", "right"])
    for (const button of tokensOf(side)) {
      const index = Number(button.dataset.index);
      const weight = token && token.side !== side ? meanOf(heads, token, index) : null;
      button.classList.toggle("current", token?.side === side && token.index === index);
      button.setAttribute("aria-pressed", String(pinned?.side === side && pinned.index === index));
      button.style.setProperty("--weight", weight ?? 0);
      button.querySelector(".number").textContent = weight === null || weight < 0.005 ? "" : rounded(weight);
    }
  byId("stage").classList.toggle("one", token !== null);
  drawDetail(heads, token);
}

const rowAndColumn = (token, other) => (token.side === "left" ? [token.index, other] : [other, token.index]);
const meanOf = (heads, token, other) => meanAt(layerShown(), heads, ...rowAndColumn(token, other));

// One path for each head and level of weight: few elements, however many the lines.
function linePaths(heads, token) {
  const { Q, K } = currentWeights();
  const rows = token?.side === "left" ? [token.index] : range(Q);
  const columns = token?.side === "right" ? [token.index] : range(K);
  const gap = Math.min(2.6, 18 / heads.length), widest = Math.min(7, Math.max(2.4, 18 / heads.length));
  return heads.flatMap((head, place) => {
    const levels = new Map();
    const shift = (place - (heads.length - 1) / 2) * gap;
    for (const row of rows)
      for (const column of columns) {
        const weight = weightAt(layerShown(), head, row, column);
        if (weight < FAINTEST) continue;
        const level = Math.min(Math.ceil(weight * LEVELS), LEVELS);
        const from = ((row + 0.5) * ROW + shift).toFixed(1), to = ((column + 0.5) * ROW + shift).toFixed(1);
        levels.set(level, `${levels.get(level) ?? ""}M0 ${from}L100 ${to}`);
      }
    return [...levels].map(([level, d]) => svgElement("path", {
      d, "data-head": head, "data-colour": head % PER_ROW, "stroke-dasharray": dashOf(head),
      "stroke-opacity": level / LEVELS, "stroke-width": 0.6 + (widest - 0.6) * (level / LEVELS),
    }));
  });
}

function drawDetail(heads, token) {
  const detail = byId("detail");
  if (!token) {
    detail.replaceChildren(
      hint("Point at a token to see only its lines, and its weights as numbers."),
      hint("With the keyboard: Tab to a column, then ↑ ↓ ← →."),
      hint("Click or Enter pins the token, Esc unpins it."));
    return;
  }
  const { rows, columns, Q, K } = currentWeights();
  const left = token.side === "left";
  const [own, others] = left ? [rows, columns] : [columns, rows];
  const lines = heads.map((head) => {
    const weights = range(left ? K : Q).map((other) => weightAt(layerShown(), head, ...rowAndColumn(token, other)));
    const best = strongest(weights, 3).filter((other) => weights[other] >= 0.005);
    return element("li", {}, headMark(head), element("span", { className: "nth", textContent: head + 1 }),
      element("span", {}, ...best.map((other) =>
        element("span", { className: "key" }, labelOf(others[other]), ` ${rounded(weights[other])} `))));
  });
  detail.replaceChildren(
    element("h3", {}, labelOf(own[token.index]), left ? " attends to" : " is attended to by"),
    element("ul", {}, ...lines),
    element("p", { className: "small" }, heads.length > 1
      ? "The three largest weights of each head. Beside the tokens: the mean of the heads shown."
      : "The three largest weights."));
}

const tokenOf = (node) => {
  const button = node instanceof Element && node.closest(".tokens button");
  return button ? { side: button.dataset.side, index: Number(button.dataset.index) } : null;
};

// The token shown while the pointer is on none. A click leaves focus too, but not :focus-visible.
const defaultToken = () => tokenOf(document.querySelector(".tokens button:focus-visible")) ?? pinned;

function onToken({ target }) {
  drawToken(tokenOf(target) ?? defaultToken());
}

function onTokenClick({ target }) {
  const token = tokenOf(target);
  if (!token) return;
  pinned = pinned?.side === token.side && pinned.index === token.index ? null : token;
  rove(tokensOf(token.side), token.index);
  if (token.side === "left") selectQuery(token.index);
  drawToken(pinned ?? token);
}

function onTokenKey(event) {
  const token = tokenOf(event.target);
  if (!token) return;
  const others = { ArrowLeft: "left", ArrowRight: "right" };
  const tokens = tokensOf(others[event.key] ?? token.side);
  const to = { ArrowUp: token.index - 1, ArrowDown: token.index + 1, Home: 0, End: tokens.length - 1 };
  if (event.key === "Escape") { pinned = null; drawToken(null); return; }
  if (!(event.key in to) && !(event.key in others)) return;
  event.preventDefault();
  moveTo(tokens, to[event.key] ?? Math.min(token.index, tokens.length - 1));
}

// --- Matrix view ---------------------------------------------------------------------------------------------------

let cells = []; // [row][column] of <td>

const matrixWeight = (row, column) =>
  state.head === "mean"
    ? meanAt(layerShown(), range(currentWeights().H), row, column)
    : weightAt(layerShown(), state.head, row, column);

function drawMatrix() {
  const { rows, columns, Q, K } = currentWeights();
  const weights = range(Q).map((row) => range(K).map((column) => matrixWeight(row, column)));
  const top = Math.max(...weights.flat()) || 1;
  cells = weights.map((line) => line.map((weight) => {
    const cell = element("td", { tabIndex: -1, textContent: weight < 0.005 ? "" : rounded(weight).replace(/^0/, "") });
    cell.style.setProperty("--weight", weight / top);
    cell.classList.toggle("strong", weight / top > 0.7);
    return cell;
  }));
  cells[0][0].tabIndex = 0;
  cells.forEach((line, row) => line.forEach((cell, column) => {
    Object.assign(cell.dataset, { row, column });
    cell.ariaLabel = `${rows[row]} to ${columns[column]}: ${exact(weights[row][column])}`;
  }));
  const heads = columns.map((text) => element("th", { scope: "col" }, labelOf(text)));
  byId("matrix").replaceChildren(
    element("thead", {}, element("tr", {}, element("td"), ...heads)),
    element("tbody", {}, ...rows.map((text, row) =>
      element("tr", {}, element("th", { scope: "row" }, labelOf(text)), ...cells[row]))));
  byId("scale-top").textContent = rounded(top);
  byId("cell-value").replaceChildren(
    hint("Point at a cell, or move to it with Tab and the arrow keys, for its exact weight."));
  fitMatrix();
}

// Cells as large as the page allows; numbers only where they fit.
function fitMatrix(width = byId("matrix-box").clientWidth - 8) {
  const box = byId("matrix-box"), { K } = currentWeights();
  const names = Math.min(130, Math.max(72, width * 0.12));
  const size = Math.max(10, Math.min(44, Math.floor((width - names) / K)));
  box.style.setProperty("--names", `${names}px`);
  box.style.setProperty("--cell", `${size}px`);
  box.classList.toggle("numbers", size >= 30);
}

function onCell({ target }) {
  const cell = target instanceof Element && target.closest("tbody td");
  if (!cell) return;
  const { rows, columns } = currentWeights();
  const row = Number(cell.dataset.row), column = Number(cell.dataset.column);
  for (const old of byId("matrix").querySelectorAll(".current")) old.classList.remove("current");
  const ofRow = cell.parentElement.cells[0], ofColumn = byId("matrix").rows[0].cells[column + 1];
  for (const one of [cell, ofRow, ofColumn]) one.classList.add("current");
  byId("cell-value").replaceChildren(
    labelOf(rows[row]), ` (${row + 1}) → `, labelOf(columns[column]), ` (${column + 1}) `,
    element("strong", { textContent: exact(matrixWeight(row, column)) }));
}

function onCellKey(event) {
  const cell = event.target.closest("tbody td");
  const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
  const edge = { Home: 0, End: currentWeights().K - 1 }[event.key];
  if (!cell || (!step && edge === undefined)) return;
  event.preventDefault();
  const row = Number(cell.dataset.row), column = Number(cell.dataset.column);
  const to = step ? cells[row + step[0]]?.[column + step[1]] : cells[row][edge];
  if (!to) return;
  cell.tabIndex = -1;
  to.tabIndex = 0;
  to.focus();
}

// --- View of one token: every layer and head -----------------------------------------------------------------------

function selectQuery(row) {
  state.query = row;
  byId("query").querySelectorAll("input")[row].checked = true;
}

function drawTokenView() {
  const { rows, columns, Y, H, K } = currentWeights();
  const key = state.key === "" ? null : Number(state.key);
  const weightsOf = (layer, head) => range(K).map((column) => weightAt(layer, head, state.query, column));
  const strips = range(Y).map((layer) => range(H).map((head) => {
    const weights = weightsOf(layer, head);
    return { layer, head, weights, named: key ?? strongest(weights, 1)[0] };
  }));
  const valueOf = (strip) => strip.weights[strip.named];
  const best = strips.flat().reduce((a, b) => (valueOf(b) > valueOf(a) ? b : a));
  byId("strongest").replaceChildren(
    labelOf(rows[state.query]), " attends most to ", labelOf(columns[best.named]), " in ",
    element("strong", { textContent: `layer ${best.layer + 1}, head ${best.head + 1}: ${exact(valueOf(best))}` }));
  byId("multiples").style.setProperty("--across", Math.min(H, PER_ROW));
  byId("multiples").replaceChildren(...strips.map((line, layer) =>
    element("div", { className: "layer" }, element("h3", { textContent: `Layer ${layer + 1}` }),
      element("div", { className: "strips" }, ...line.map((strip) => stripButton(strip, columns, strip === best))))));
  rove(stripButtons(), 0);
  byId("strip-value").replaceChildren(hint(
    "Point at a picture, or move to it with Tab and the arrow keys, for its strongest tokens. "
    + "Click or Enter opens it among the heads."));
}

function stripButton({ layer, head, weights, named }, columns, isBest) {
  const svg = svgElement("svg", { viewBox: `0 0 ${weights.length} 1`, preserveAspectRatio: "none", "aria-hidden": "true" });
  weights.forEach((weight, column) => svg.append(svgElement("rect", {
    x: column + 0.1, y: 1 - weight, width: 0.8, height: weight, class: column === named ? "named" : "",
  })));
  const button = element("button", { type: "button", className: isBest ? "strip best" : "strip" },
    element("span", { className: "top" },
      element("span", { className: "nth", textContent: `Head ${head + 1}` }), rounded(weights[named])),
    svg, labelOf(columns[named]));
  const words = strongest(weights, 5).map((column) => `${columns[column]} ${exact(weights[column])}`);
  button.ariaLabel = `Layer ${layer + 1}, head ${head + 1}: ${words.join(", ")}`;
  Object.assign(button.dataset, { layer, head });
  return button;
}

const stripButtons = () => [...byId("multiples").querySelectorAll("button")];

function onStrip({ target }) {
  const strip = target instanceof Element && target.closest(".strip");
  if (strip) byId("strip-value").textContent = strip.ariaLabel;
}

// Opens the head view with only this head and the same query.
function onStripClick({ target }) {
  const strip = target.closest(".strip");
  if (!strip) return;
  state.layer = Number(strip.dataset.layer);
  state.heads = [Number(strip.dataset.head)];
  state.view = "head";
  pinned = { side: "left", index: state.query };
  document.querySelector("[name=view][value=head]").checked = true;
  buildPickers();
  draw();
  moveTo(tokensOf("left"), state.query);
}

function onStripKey(event) {
  const strips = stripButtons(), here = strips.indexOf(event.target), { H } = currentWeights();
  const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -H, ArrowDown: H }[event.key];
  if (here < 0 || by === undefined) return;
  event.preventDefault();
  moveTo(strips, here + by);
}

// --- Output steps: distributions, and the tree of hypotheses --------------------------------------------------------

const NODE = { width: 98, height: 26, gap: 28, row: 31, top: 26 }; // of the tree, in pixels

const percent = (p) => (p >= 0.9995 ? "100 %" : p >= 0.0995 ? `${(100 * p).toFixed(0)} %` : p >= 0.001
  ? `${(100 * p).toFixed(1)} %` : "< 0.1 %");
const decimals = (number) => number.toFixed(3);

function stepsHow() {
  return EXPLANATION.hypotheses
    ? "A card is a step: the likeliest tokens of the whole vocabulary, with the probability that the model gives each "
      + "after the tokens before it. The token that was chosen is marked."
    : "A card is a token of the translation: what the model predicts there, beside what it was trained to predict.";
}

function drawSteps() {
  if (byId("cards").childElementCount) return;
  byId("step-notes").replaceChildren(
    ...EXPLANATION.notes.map((text) => element("p", { className: "note", textContent: text })));
  byId("cards").replaceChildren(...EXPLANATION.steps.map(stepCard));
  if (EXPLANATION.hypotheses) {
    byId("legend").textContent = `Sum of log p: ${decimals(
      EXPLANATION.steps.reduce((sum, step) => sum + step.token_log_prob, 0))} (natural logarithms).`;
    if (EXPLANATION.hypotheses.some((one) => one.fate === "dropped") || EXPLANATION.ranking.length > 1) drawBeam();
    return;
  }
  const { label_smoothing: smoothing, vocabulary, log_prob: sum } = EXPLANATION;
  const swatch = (name) => element("span", { className: `swatch ${name}` });
  const each = (text) => element("span", { className: "entry" }, ...text);
  byId("legend").replaceChildren(
    each([swatch("model"), "the model"]), each([swatch("one-hot"), "one-hot target"]),
    ...(smoothing === null ? [] : [each([swatch("smoothed"), `smoothed target, as trained: ${smoothing} is spread `
      + `evenly over ${vocabulary.toLocaleString("en")} tokens`])]),
    ...(smoothing === null ? [] : [each(["loss: cross-entropy with the smoothed target"])]),
    each([`log-probability of the translation: ${decimals(sum)}`]));
}

function stepCard(step, index) {
  const facts = "rank" in step
    ? `rank ${step.rank} · −log p ${decimals(-step.token_log_prob)}` + ("loss" in step ? ` · loss ${decimals(step.loss)}` : "")
    : `log p ${decimals(step.token_log_prob)}` + ("drawn" in step ? ` · drawn with ${percent(step.drawn)}` : "");
  const isChosen = (option) => option.target ?? option.token === step.token;
  const options = step.likeliest.some(isChosen) ? step.likeliest : [...step.likeliest, step];
  return element("li", { className: "card" },
    element("p", { className: "head" }, element("span", { className: "nth", textContent: index + 1 }), labelOf(step.token)),
    element("p", { className: "small", textContent: facts }),
    bars(options, isChosen));
}

// A row for each token: label, bar of its probability, number.
function bars(options, isChosen) {
  return element("ul", { className: "bars" }, ...options.map((option) => {
    const track = element("span", { className: "track" }, element("span", { className: "bar" }));
    track.style.setProperty("--p", option.probability);
    if ("target" in option) {
      if (option.target) track.append(element("span", { className: "one-hot" }));
      if ("smoothed" in option) track.append(element("span", { className: "smoothed" }));
      track.style.setProperty("--smoothed", option.smoothed ?? 0);
    }
    const row = element("li", {}, labelOf(option.token), track,
      element("span", { className: "number", textContent: percent(option.probability) }));
    if ("smoothed" in option)
      row.title = `model ${option.probability}, one-hot ${option.target}, smoothed ${option.smoothed}`;
    else row.title = `${option.probability}` + ("drawn" in option ? `, drawn with ${option.drawn}` : "");
    row.classList.toggle("chosen", isChosen(option));
    if (option.allowed === false) { row.classList.add("banned"); row.title += ", banned"; }
    return row;
  }));
}

const tree = new Map(); // id → {…hypothesis, children, tokens, button}

function drawBeam() {
  byId("beam").hidden = false;
  const onPath = new Set([0, ...EXPLANATION.path]);
  byId("tree-how").textContent = "A column is a step. Boxes of a full line were kept, double ones finished, dotted ones dropped; "
    + "thick ones are parts of the translation. Point at one, or Tab to the tree and use ← → ↑ ↓: → leads to the best "
    + "continuation, End to the end of the translation.";
  tree.set(0, { id: 0, step: 0, token: "<s>", fate: "kept", children: [], tokens: [] });
  for (const one of EXPLANATION.hypotheses) {
    const parent = tree.get(one.parent);
    if (!parent) continue;
    tree.set(one.id, { ...one, children: [], tokens: [...parent.tokens, one.token] });
    parent.children.push(one.id);
  }
  const columns = [];
  for (const node of tree.values()) (columns[node.step] ??= []).push(node);
  const last = { kept: 0, finished: 0, dropped: 1 };
  columns.forEach((column) => {
    column.sort((a, b) => last[a.fate] - last[b.fate] || a.id - b.id);
    column.forEach((node, row) => { node.row = row; });
  });
  const lines = svgElement("svg", { "aria-hidden": "true", class: "lines" });
  const height = NODE.top + NODE.row * Math.max(...columns.map((column) => column.length));
  const width = columns.length * (NODE.width + NODE.gap) - NODE.gap;
  lines.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const left = (node) => node.step * (NODE.width + NODE.gap), middle = (node) => NODE.top + node.row * NODE.row + NODE.height / 2;
  const drawn = [];
  for (const node of tree.values()) {
    if (node.id !== 0) {
      const parent = tree.get(node.parent), x = left(parent) + NODE.width, to = left(node), y = middle(parent), z = middle(node);
      const path = svgElement("path", {
        d: `M${x} ${y}C${x + NODE.gap / 2} ${y} ${to - NODE.gap / 2} ${z} ${to} ${z}`, class: node.fate,
      });
      if (onPath.has(node.id)) path.classList.add("best");
      node.line = path;
      lines.append(path);
    }
    node.button = treeButton(node, onPath.has(node.id), columns[node.step].length);
    node.button.style.setProperty("left", `${left(node)}px`);
    node.button.style.setProperty("top", `${NODE.top + node.row * NODE.row}px`);
    drawn.push(node.button);
  }
  const heads = columns.map((_, step) => {
    const head = element("span", { className: "step", ariaHidden: "true", textContent: step ? `step ${step}` : "beginning" });
    head.style.setProperty("left", `${step * (NODE.width + NODE.gap)}px`);
    return head;
  });
  byId("tree").style.setProperty("width", `${width}px`);
  byId("tree").style.setProperty("height", `${height}px`);
  byId("tree").replaceChildren(lines, ...heads, ...drawn);
  rove(drawn, 0);
  showNode(tree.get(0));
  drawRanking();
}

function treeButton(node, isBest, ofColumn) {
  const name = node.id === 0 ? "beginning of the sentence" : `${node.token}, step ${node.step}, ${node.row + 1} of ${ofColumn}, `
    + `${node.fate}${isBest ? ", part of the translation" : ""}, p ${percent(node.probability)}, score ${decimals(node.score)}`;
  const text = element("bdi", { textContent: node.token.replace(/^▁(?=.)/u, "") });
  const button = element("button", { type: "button", className: `hypothesis ${node.fate}`, ariaLabel: name, title: node.token },
    text, ...(node.id === 0 ? [] : [element("span", { className: "score", textContent: node.score.toFixed(2) })]));
  button.setAttribute("role", "treeitem");
  button.setAttribute("aria-level", node.step + 1);
  button.classList.toggle("best", isBest);
  button.dataset.node = node.id;
  return button;
}

// The details of a hypothesis, and its line of descent in the tree.
function showNode(node) {
  for (const one of tree.values()) { one.button.classList.remove("current", "line"); one.line?.classList.remove("current"); }
  for (let one = node; one; one = tree.get(one.parent)) { one.button.classList.add("line"); one.line?.classList.add("current"); }
  node.button.classList.add("current");
  const text = mergeLabels(node.tokens.filter((token) => token !== "</s>")).join(" ");
  const what = { kept: "kept: continued in the next step", finished: "finished", dropped: "dropped: others are better" }[node.fate];
  const options = EXPLANATION.next[node.id];
  const continued = new Set(node.children.map((child) => tree.get(child).token));
  byId("node").replaceChildren(
    element("h3", {}, element("bdi", { textContent: text || "<s>" })),
    ...(node.id === 0 ? [] : [element("dl", {},
      ...[["fate", what + (node.lacks_terms ? ", without a term" : "")],
        ["token", `${node.token}: p ${percent(node.probability)}, log p ${decimals(node.token_log_prob)}`],
        ["log p", `${decimals(node.log_prob)}, the sum of its tokens`], ["score", `${decimals(node.score)}, normalised for its length`],
      ].flatMap(([name, value]) => [element("dt", { textContent: name }), element("dd", { textContent: value })]))]),
    ...(options
      ? [element("p", { className: "small", textContent: "Next token; marked: considered by the beam" }),
        bars(options, (option) => continued.has(option.token))]
      : []));
}

function drawRanking() {
  const rows = EXPLANATION.ranking.map((one, index) => {
    const text = element("bdi", { textContent: one.translation || "(empty)" });
    const shown = tree.has(one.hypothesis)
      ? element("button", { type: "button", className: "ranked" }, text) : element("span", {}, text);
    shown.dataset.node = one.hypothesis;
    const row = element("tr", {},
      element("td", { textContent: `${index + 1}${one.returned ? " ★" : ""}` }), element("td", { textContent: decimals(one.score) }),
      element("td", { textContent: decimals(one.log_prob) }),
      element("td", {}, shown, one.finished ? "" : " … not finished"));
    row.classList.toggle("best", one.returned === 1);
    return row;
  });
  byId("ranking").tBodies[0].replaceChildren(...rows);
}

const nodeOf = (target) => {
  const button = target instanceof Element && target.closest("[data-node]");
  return button ? tree.get(Number(button.dataset.node)) : undefined;
};

function onNode({ target }) {
  const node = nodeOf(target);
  if (node) showNode(node);
}

function focusNode(node) {
  if (!node) return;
  rove([...tree.values()].map((one) => one.button), node.id === 0 ? 0 : [...tree.keys()].indexOf(node.id));
  node.button.focus({ preventScroll: true });
  node.button.scrollIntoView({ block: "nearest", inline: "center" });
}

function onNodeKey(event) {
  const node = nodeOf(event.target);
  if (!node) return;
  const beside = (by) => [...tree.values()].find((one) => one.step === node.step && one.row === node.row + by);
  const best = node.children.find((id) => tree.get(id).button.classList.contains("best")) ?? node.children[0];
  const to = {
    ArrowLeft: () => tree.get(node.parent), ArrowRight: () => tree.get(best), ArrowUp: () => beside(-1),
    ArrowDown: () => beside(1), Home: () => tree.get(0), End: () => tree.get(EXPLANATION.path.at(-1)),
  }[event.key];
  if (!to) return;
  event.preventDefault();
  focusNode(to());
}

// --- Fragment of the address --------------------------------------------------------------------------------------

// Shows what the address names: #kind=encoder&layer=5&heads=1,6&token=it. Numbers count from 1; a name that the page
// does not have changes nothing.
function openAt(fragment) {
  const wanted = new URLSearchParams(fragment);
  const choose = (name, value) => document.querySelector(`[name=${name}][value="${CSS.escape(value)}"]`)?.click();
  for (const name of ["view", "kind"]) {
    if (wanted.has(name) && (wanted.get(name) !== "steps" || EXPLANATION !== null)) choose(name, wanted.get(name));
  }
  const merged = document.querySelector("[name=merged]");
  if (wanted.has("words") && merged.checked !== (wanted.get("words") === "1")) merged.click();
  if (wanted.has("layer")) choose("layer", String(Number(wanted.get("layer")) - 1));
  if (wanted.has("heads")) {
    const heads = wanted.get("heads").split(",").map((head) => Number(head) - 1).filter((head) => head in headInputs());
    if (heads.length) {
      setAllHeads(false);
      for (const head of heads) choose("heads", String(head));
    }
  }
  const index = currentWeights().rows.findIndex((label) => label.replace(/^▁/u, "") === wanted.get("token"));
  if (index >= 0) {
    pinned = null;
    onTokenClick({ target: tokensOf("left")[index] });
  }
}

// --- Together ------------------------------------------------------------------------------------------------------

byId("controls").addEventListener("change", onControl);
byId("strongest-heads").addEventListener("click", showStrongest);
byId("all").addEventListener("click", () => setAllHeads(true));
byId("none").addEventListener("click", () => setAllHeads(false));
for (const name of ["mouseover", "focusin"]) {
  byId("stage").addEventListener(name, onToken);
  byId("matrix").addEventListener(name, onCell);
  byId("multiples").addEventListener(name, onStrip);
}
byId("stage").addEventListener("mouseleave", () => drawToken(defaultToken()));
byId("stage").addEventListener("focusout", () => drawToken(pinned));
byId("stage").addEventListener("click", onTokenClick);
byId("stage").addEventListener("keydown", onTokenKey);
byId("matrix").addEventListener("keydown", onCellKey);
byId("multiples").addEventListener("click", onStripClick);
byId("multiples").addEventListener("keydown", onStripKey);
byId("query").addEventListener("change", ({ target }) => { selectQuery(Number(target.value)); drawTokenView(); });
byId("key").addEventListener("change", ({ target }) => { state.key = target.value; drawTokenView(); });
for (const name of ["mouseover", "focusin"]) byId("tree").addEventListener(name, onNode);
byId("tree").addEventListener("keydown", onNodeKey);
byId("ranking").addEventListener("click", ({ target }) => focusNode(nodeOf(target)));
byId("steps-option").hidden = EXPLANATION === null;
for (const [kind, [layers]] of Object.entries(MAPS.shapes)) {  // a recurrent decoder has no self-attention
  if (layers === 0) document.querySelector(`[name=kind][value=${kind}]`).parentElement.remove();
}
window.addEventListener("resize", () => { if (state.view === "matrix") fitMatrix(); });
window.addEventListener("beforeprint", () => { if (state.view === "matrix") fitMatrix(PAPER); });
window.addEventListener("afterprint", () => { if (state.view === "matrix") fitMatrix(); });
buildPickers();
buildTokens();
draw();
openAt(location.hash.slice(1));
window.addEventListener("hashchange", () => openAt(location.hash.slice(1)));
