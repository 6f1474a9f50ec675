"use strict";

const byId = (id) => document.getElementById(id);
const range = (length) => Array.from({ length }, (_, i) => i);
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

// Data of the page: colour maps of positions (rows) and dimensions (columns), and similarities of positions.
const DATA = JSON.parse(byId("data").textContent);
const { kind: KIND, first: FIRST, length: LENGTH, wavelengths: WAVELENGTHS } = DATA;
const ROTARY = KIND === "rotary", LEARNED = KIND === "learned";
const IN_USE = DATA.maps.find((map) => map.used);

// One hue per sign, cyclic colours for angles, one hue for similarities; for a light screen and paper, and a dark one.
const PALETTES = {
  light: {
    signed: ["#053061", "#2166ac", "#4393c3", "#92c5de", "#d1e5f0", "#f7f7f7", "#fddbc7", "#f4a582", "#d6604d", "#b2182b", "#67001f"],
    cyclic: ["#e2d9e2", "#95b5c7", "#6276ba", "#592a8f", "#2f1436", "#741e4f", "#b25652", "#cca389", "#e2d9e2"],
    sequential: ["#f7fbff", "#d0e1f2", "#94c4df", "#4a98c9", "#1764ab", "#08306b"],
  },
  dark: {
    signed: ["#9ad4f5", "#5fb0e0", "#3585bd", "#245f89", "#1f3c50", "#202429", "#452a26", "#7a3c2f", "#b05a42", "#dd8263", "#fbb798"],
    cyclic: ["#e2d9e2", "#95b5c7", "#6276ba", "#592a8f", "#2f1436", "#741e4f", "#b25652", "#cca389", "#e2d9e2"],
    sequential: ["#1d2126", "#1f3b52", "#23618c", "#3d8fc4", "#7cc0ea", "#d3edff"],
  },
};
const DARK = matchMedia("(prefers-color-scheme: dark)");
let printing = false;

const LEFT = 40, BELOW = 32, EDGE = 10; // pixels beside a colour map, for its axes
const BETWEEN = 34; // pixels between two that stand in a row, as in the style
const PAPER = 700; // width of a printed page, in pixels, that both A4 and Letter have
const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000];
const DOTTED = 64; // curves of more points have no dots

// Indices from 0; a pair that is neither the first nor one of those that hardly change.
const START = { position: Math.min(LENGTH - 1, 4), dimension: 2 * Math.floor(IN_USE.dimensions.length / 32) };
const picked = { ...START, other: START.position };
let pointed = {}; // the part of it that the mouse points at
const current = () => ({ ...picked, ...pointed });
let measure = "cosine";

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function svgElement(name, attributes = {}, ...children) {
  const made = document.createElementNS(byId("row-chart").namespaceURI, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// --- Numbers -------------------------------------------------------------------------------------------------------

function unpack() {
  const text = atob(byId("numbers").textContent), bytes = new Uint8Array(text.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = text.charCodeAt(i);
  const numbers = new Float32Array(bytes.buffer); // little-endian, as every machine with a browser is
  let read = 0;
  const take = (count) => numbers.subarray(read, (read += count));
  for (const map of DATA.maps) map.values = take(LENGTH * map.dimensions.length);
  for (const one of DATA.similarities) {
    one.cosine = take(LENGTH * LENGTH);
    if (one.dot) one.dot = take(LENGTH * LENGTH);
  }
}

// The shortest decimal number that is this float32 and no other.
function exact(value) {
  for (let digits = 1; digits < 9; digits++)
    if (Math.fround(Number(value.toPrecision(digits))) === value) return String(Number(value.toPrecision(digits)));
  return String(Number(value.toPrecision(9)));
}

const short = (value) => String(Number(value.toPrecision(4)));
const wave = (length) => (length < 1000 ? short(length) : Math.round(length).toLocaleString("en"));

function extremes(values) {
  let low = Infinity, high = -Infinity;
  for (const value of values) {
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  return [low, high];
}

// --- Colours -------------------------------------------------------------------------------------------------------

const LEVELS = 256;

// LEVELS colours as [red, green, blue], between the given ones.
function colours(name) {
  const stops = PALETTES[DARK.matches && !printing ? "dark" : "light"][name]
    .map((text) => [1, 3, 5].map((i) => parseInt(text.slice(i, i + 2), 16)));
  return range(LEVELS).map((level) => {
    const at = (level / (LEVELS - 1)) * (stops.length - 1), i = Math.min(Math.floor(at), stops.length - 2);
    return stops[i].map((from, k) => Math.round(from + (at - i) * (stops[i + 1][k] - from)));
  });
}

function paint(canvas, values, columns, [low, high], palette) {
  const rows = values.length / columns, table = colours(palette);
  canvas.width = columns;
  canvas.height = rows;
  const image = new ImageData(columns, rows);
  for (let i = 0; i < values.length; i++) {
    const share = high > low ? (values[i] - low) / (high - low) : 1;
    const colour = table[Math.round(clamp(share, 0, 1) * (LEVELS - 1))];
    for (let k = 0; k < 3; k++) image.data[4 * i + k] = colour[k];
    image.data[4 * i + 3] = 255;
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
}

// --- Colour maps ---------------------------------------------------------------------------------------------------

// Multiples of a round number, such that labels of this many pixels fit between them.
function ticks(count, first, cell, room) {
  const step = STEPS.find((one) => one * cell >= room) ?? count;
  return range(count).filter((i) => (first + i) % step === 0);
}

// A colour map that mouse and keyboard move in. `spec` has: title; values(), columns, limits(), palette; x and y, which
// have the number of the first column and row, and x.title; marked(), the current [row, column]; at(row, column), what
// picks a cell; describe, the id of the text that reads it.
function colourMap(spec) {
  const canvas = element("canvas"), svg = svgElement("svg");
  const heat = element("div", { className: "heat", tabIndex: 0 }, canvas, svg);
  heat.setAttribute("role", "application");
  heat.setAttribute("aria-roledescription", "colour map");
  heat.setAttribute("aria-label", `${spec.title}. Arrow keys move`);
  heat.setAttribute("aria-describedby", spec.describe);
  const ramp = element("canvas"), low = element("span"), high = element("span");
  const scroll = element("div", { className: "scroll" }, heat);
  const caption = element("figcaption", {}, spec.title, " ", element("span", { className: "small", textContent: spec.note }));
  const figure = element("figure", {}, caption, scroll, element("p", { className: "scale", ariaHidden: "true" }, low, ramp, high));
  const { columns } = spec;
  let width = 1, height = 1; // of a cell, in pixels
  const marks = ["halo", "mark", "halo", "mark", "halo", "mark"].map((name) => svgElement("rect", { class: name }));

  function cellAt(event) {
    const box = svg.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left - LEFT) / width);
    const row = Math.floor((event.clientY - box.top) / height);
    return row >= 0 && row < LENGTH && column >= 0 && column < columns ? [row, column] : null;
  }

  function onKey(event) {
    const [row, column] = spec.marked(), far = event.shiftKey ? 10 : 1, all = event.ctrlKey || event.metaKey;
    const move = {
      ArrowLeft: [row, column - far], ArrowRight: [row, column + far],
      ArrowUp: [row - far, column], ArrowDown: [row + far, column],
      PageUp: [row - 10, column], PageDown: [row + 10, column],
      Home: all ? [0, column] : [row, 0], End: all ? [LENGTH - 1, column] : [row, columns - 1],
    }[event.key];
    if (!move || event.altKey) return;
    event.preventDefault();
    pointed = {};
    Object.assign(picked, spec.at(clamp(move[0], 0, LENGTH - 1), clamp(move[1], 0, columns - 1)));
    mark();
    const x = LEFT + spec.marked()[1] * width;
    if (x < scroll.scrollLeft + LEFT || x > scroll.scrollLeft + scroll.clientWidth - 20)
      scroll.scrollLeft = x - scroll.clientWidth / 2;
  }

  heat.addEventListener("pointermove", (event) => {
    const cell = event.pointerType === "touch" ? null : cellAt(event);
    pointed = cell ? spec.at(...cell) : {};
    mark();
  });
  heat.addEventListener("pointerleave", () => { pointed = {}; mark(); });
  heat.addEventListener("click", (event) => {
    const cell = cellAt(event);
    if (!cell) return;
    Object.assign(picked, spec.at(...cell));
    mark();
  });
  heat.addEventListener("keydown", onKey);

  return {
    figure,
    draw() {
      const values = spec.values(), limits = spec.limits();
      paint(canvas, values, columns, limits, spec.palette);
      paint(ramp, Float32Array.from(range(LEVELS)), LEVELS, [0, LEVELS - 1], spec.palette);
      [low.textContent, high.textContent] = spec.ends ?? limits.map(short);
      const page = printing ? PAPER : byId("maps").clientWidth;
      const space = (ROTARY && !spec.square && page > 900 ? page / 3 - BETWEEN : page) - LEFT - EDGE;
      if (spec.square) {
        width = height = clamp(Math.floor(Math.min(space, 440) / columns), 1, 22);
      } else {
        width = clamp(Math.floor(space / columns), 1, 24);
        height = clamp(Math.floor(300 / LENGTH), 1, 15);
      }
      const [wide, tall] = [width * columns, height * LENGTH];
      Object.assign(canvas.style, { left: `${LEFT}px`, top: "0", width: `${wide}px`, height: `${tall}px` });
      for (const [name, size] of [["width", LEFT + wide + EDGE], ["height", tall + BELOW]]) svg.setAttribute(name, size);
      const label = (x, y, text, anchor) => svgElement("text", { x, y, "text-anchor": anchor }, String(text));
      const rows = ticks(LENGTH, FIRST, height, 13), across = ticks(columns, spec.x.first, width, 34);
      svg.replaceChildren(
        ...rows.map((row) => label(LEFT - 5, (row + 0.5) * height + 4, FIRST + row, "end")),
        ...across.map((column) => label(LEFT + (column + 0.5) * width, tall + 13, spec.x.first + column, "middle")),
        label(LEFT, tall + 27, `${spec.x.title} →`, "start"),
        ...marks,
      );
    },
    // The row, the column and the cell that are current, each with a halo.
    mark() {
      const [row, column] = spec.marked(), [wide, tall] = [width * columns, height * LENGTH];
      const boxes = [
        [LEFT, row * height, wide, height], [LEFT + column * width, 0, width, tall],
        [LEFT + column * width - 1, row * height - 1, width + 2, height + 2],
      ];
      marks.forEach((rect, i) => {
        const [x, y, w, h] = boxes[i >> 1];
        for (const [name, value] of Object.entries({ x, y, width: w, height: h })) rect.setAttribute(name, value);
      });
    },
  };
}

// --- The parts of this page ----------------------------------------------------------------------------------------

const TITLES = {
  interleaved: ["Interleaved", "sine and cosine in turn"],
  concatenated: ["Concatenated", "all sines, then all cosines"],
  angle: ["Angle", "modulo 2π"],
  cos: ["Cosine", "of the angle"],
  sin: ["Sine", "of the angle"],
};
const capital = (text) => text.slice(0, 1).toUpperCase() + text.slice(1);
const titleOf = (name) => (name in TITLES ? TITLES[name][0] : capital(name || "learned"));

function noteOf(map) {
  const notes = [TITLES[map.name]?.[1], !ROTARY && !LEARNED && map.used && "the layout of this model"];
  return notes.filter(Boolean).join("; ");
}

function mapSpec(map) {
  const columnOf = new Map(map.dimensions.map((dimension, column) => [dimension, column]));
  const [low, high] = LEARNED ? extremes(map.values) : [-1, 1], size = Math.max(Math.abs(low), Math.abs(high)) || 1;
  const angle = map.name === "angle";
  return {
    title: titleOf(map.name), note: noteOf(map), columns: map.dimensions.length, describe: "value",
    palette: angle ? "cyclic" : "signed", values: () => map.values,
    limits: () => (angle ? [0, 2 * Math.PI] : [-size, size]), ends: angle ? ["0", "2π"] : null,
    x: { first: 0, title: ROTARY ? "pair of dimensions" : "dimension" },
    marked: () => [current().position, columnOf.get(current().dimension)],
    at: (row, column) => ({ position: row, dimension: map.dimensions[column] }),
  };
}

function similaritySpec(one) {
  return {
    title: one.name ? capital(one.name) : ROTARY ? "Mean cosine" : "All pairs", note: "", columns: LENGTH, square: true,
    describe: "similarity", palette: "sequential", values: () => one[measure], limits: () => extremes(one[measure]),
    x: { first: FIRST, title: "position" },
    marked: () => [current().position, current().other],
    at: (row, column) => ({ position: row, other: column }),
  };
}

// Value of a map at a position and a dimension of the model.
const valueAt = (map, position, dimension) => cellOf(map)(position, map.dimensions.indexOf(dimension));

// The value in a row and a column of a map.
const cellOf = (map) => (row, column) => map.values[row * map.dimensions.length + column];

// The pair of a dimension, and the curves of a chart: sine and cosine of each pair, or learned values of each dimension.
const interleaved = DATA.maps.find((map) => map.name === "interleaved");
const pairOf = (dimension) => (interleaved ? interleaved.dimensions.indexOf(dimension) >> 1 : dimension);
function curves() {
  if (LEARNED) {
    return DATA.maps.map((map, i) => ({ name: map.name || "learned", colour: 3 * i, at: cellOf(map) }));
  }
  return ["sin", "cos"].map((name, i) => {
    if (ROTARY) {
      const map = DATA.maps.find((one) => one.name === name);
      return { name, colour: 3 * i, at: cellOf(map) };
    }
    return { name, colour: 3 * i, at: (p, pair) => cellOf(interleaved)(p, 2 * pair + i) };
  });
}

// Curves over whole numbers. `shown`: for each {name, colour, faint, values}; `here`: the index that is marked.
function drawChart(svg, { shown, first, limits: [low, high], here, xTitle }) {
  const wide = (printing ? PAPER : svg.clientWidth) || 300, tall = 170, right = 8, top = 18;
  const count = shown[0].values.length, span = high - low || 1;
  const x = (i) => LEFT + (count > 1 ? (i / (count - 1)) * (wide - LEFT - right) : 0);
  const y = (value) => top + ((high - value) / span) * (tall - top - BELOW);
  const label = (at, down, text, anchor) => svgElement("text", { x: at, y: down, "text-anchor": anchor }, String(text));
  const pitch = (wide - LEFT - right) / Math.max(count - 1, 1);
  const lines = [low, low < 0 && high > 0 ? 0 : (low + high) / 2, high].map((value) => [
    svgElement("line", { class: "axis", x1: LEFT, x2: wide - right, y1: y(value), y2: y(value) }),
    label(LEFT - 5, y(value) + 4, short(value), "end"),
  ]);
  const drawn = shown.flatMap(({ colour, faint, values }) => {
    const group = svgElement("g", { "data-colour": colour, class: faint ? "faint" : "" });
    group.append(svgElement("path", { class: "curve", d: values.map((value, i) => `${i ? "L" : "M"}${x(i).toFixed(1)} ${y(value).toFixed(1)}`).join("") }));
    if (count <= DOTTED) group.append(...values.map((value, i) => svgElement("circle", { cx: x(i), cy: y(value), r: 2.2 })));
    return [group];
  });
  let at = LEFT;
  const keys = shown.length < 2 ? [] : shown.map(({ name, colour }) => {
    const key = svgElement("g", { "data-colour": colour }, svgElement("rect", { class: "key", x: at, y: 3, width: 14, height: 4 }), label(at + 18, 10, name, "start"));
    at += 34 + 7 * name.length;
    return key;
  });
  svg.replaceChildren(
    ...lines.flat(), ...keys,
    svgElement("line", { class: "here", x1: x(here), x2: x(here), y1: top, y2: tall - BELOW }),
    ...drawn,
    ...shown.map(({ colour, values }) => svgElement("g", { "data-colour": colour }, svgElement("circle", { cx: x(here), cy: y(values[here]), r: 4 }))),
    ...ticks(count, first, pitch, 38).map((i) => label(x(i), tall - BELOW + 14, first + i, "middle")),
    label(LEFT, tall - 3, `${xTitle} →`, "start"),
  );
}

// --- Drawing -------------------------------------------------------------------------------------------------------

unpack();
const MAPS = DATA.maps.map((map) => colourMap(mapSpec(map)));
const SIMILAR = DATA.similarities.map((one) => colourMap(similaritySpec(one)));
const CURVES = curves();
const joined = (limits) => [Math.min(...limits.map(([low]) => low)), Math.max(...limits.map(([, high]) => high))];
const LIMITS = LEARNED ? joined(DATA.maps.map((map) => extremes(map.values))) : [-1, 1];
let similarLimits = [0, 1]; // of the curve of similarities, with 0

function draw() {
  for (const one of [...MAPS, ...SIMILAR]) one.draw();
  similarLimits = joined([[0, 0], ...DATA.similarities.map((one) => extremes(one[measure]))]);
  mark();
}

// What depends on the current position and dimension.
function mark() {
  for (const one of [...MAPS, ...SIMILAR]) one.mark();
  const { position, dimension, other } = current(), pair = pairOf(dimension);
  for (const [id, value] of [["position", FIRST + picked.position], ["dimension", picked.dimension]])
    if (document.activeElement !== byId(id)) byId(id).value = value;
  byId("value").replaceChildren(...readValue(position, dimension));
  byId("similarity").replaceChildren(...readSimilarity(position, other));

  const unit = LEARNED ? "dimension" : "pair of dimensions", count = LEARNED ? IN_USE.dimensions.length : WAVELENGTHS.length / (ROTARY ? 1 : 2);
  byId("row-title").textContent = `Position ${FIRST + position} in every ${unit}`;
  drawChart(byId("row-chart"), {
    shown: CURVES.map((curve) => ({ ...curve, values: range(count).map((i) => curve.at(position, i)) })),
    first: 0, limits: LIMITS, here: pair, xTitle: unit,
  });
  byId("column-title").textContent = LEARNED
    ? `Dimension ${dimension} at every position`
    : `Pair ${pair} at every position: one turn in ${wave(WAVELENGTHS[dimension])} positions`;
  const mine = ROTARY ? "" : IN_USE.functions[dimension];
  drawChart(byId("column-chart"), {
    shown: CURVES.map((curve) => ({
      ...curve, faint: !LEARNED && !ROTARY && curve.name !== mine, values: range(LENGTH).map((p) => curve.at(p, pair)),
    })),
    first: FIRST, limits: LIMITS, here: position, xTitle: "position",
  });
  const rows = DATA.similarities.map((one) => [...one[measure].subarray(position * LENGTH, (position + 1) * LENGTH)]);
  byId("similar-chart-title").textContent = `${measure === "dot" ? "Dot product" : ROTARY ? "Mean cosine" : "Cosine"} of position ${FIRST + position} with every position`;
  drawChart(byId("similar-chart"), {
    shown: rows.map((values, i) => ({ name: DATA.similarities[i].name || measure, colour: 3 * i, values })),
    first: FIRST, limits: similarLimits, here: other, xTitle: "position",
  });
}

const strong = (text) => element("strong", { textContent: text });

function readValue(position, dimension) {
  const p = FIRST + position, values = DATA.maps.map((map) => valueAt(map, position, dimension));
  if (LEARNED) {
    const parts = DATA.maps.flatMap((map, i) => [i ? ", " : "", map.name ? `${map.name} ` : "", strong(exact(values[i]))]);
    return [`position ${p}, dimension ${dimension}: `, ...parts];
  }
  const length = WAVELENGTHS[dimension], turn = `${p} · ${short((2 * Math.PI) / length)}`;
  const about = `, wavelength ${wave(length)} positions`;
  if (ROTARY) {
    const [angle, cos, sin] = values, half = WAVELENGTHS.length;
    return [
      `position ${p}, pair ${dimension} (dimensions ${dimension} and ${dimension + half} of a head): angle ${turn} modulo 2π = `, strong(short(angle)),
      ` (${Math.round((angle * 180) / Math.PI)}°), cos `, strong(exact(cos)), ", sin ", strong(exact(sin)), about,
    ];
  }
  const places = DATA.maps.map((map) => `${map.dimensions.indexOf(dimension)} ${map.name}`);
  return [`position ${p}, dimension ${places.join(", ")}: ${IN_USE.functions[dimension]}(${turn}) = `, strong(exact(values[0])), about];
}

function readSimilarity(position, other) {
  const parts = DATA.similarities.flatMap((one, i) => {
    const at = position * LENGTH + other;
    const numbers = [ROTARY ? "mean cosine " : "cosine ", strong(exact(one.cosine[at]))];
    if (one.dot) numbers.push(", dot product ", strong(exact(one.dot[at])));
    return [i ? "; " : "", one.name ? `${one.name}: ` : "", ...numbers];
  });
  const distance = Math.abs(position - other);
  return [`positions ${FIRST + position} and ${FIRST + other}, distance ${distance}: `, ...parts];
}

// --- Controls ------------------------------------------------------------------------------------------------------

byId("maps").append(...MAPS.map((one) => one.figure));
byId("similarities").prepend(...SIMILAR.map((one) => one.figure));
byId("measure-picker").hidden = ROTARY;
if (ROTARY) byId("dimension-label").textContent = "Pair of dimensions";
for (const [id, from, count] of [["position", FIRST, LENGTH], ["dimension", 0, IN_USE.dimensions.length]]) {
  const input = byId(id);
  Object.assign(input, { min: from, max: from + count - 1 });
  input.addEventListener("input", () => {
    const value = Number(input.value);
    if (input.value === "" || !Number.isInteger(value) || value < from || value >= from + count) return;
    pointed = {};
    picked[id] = value - from;
    mark();
  });
  input.addEventListener("blur", mark);
}
for (const radio of document.querySelectorAll("[name=measure]"))
  radio.addEventListener("change", () => { measure = radio.value; draw(); });
DARK.addEventListener("change", draw);
window.addEventListener("resize", draw);
window.addEventListener("beforeprint", () => { printing = true; draw(); });
window.addEventListener("afterprint", () => { printing = false; draw(); });
draw();
