"use strict";

// The translation is a list of lines, one for each line of the text. A line has parts, which are its sentences.
// Text of the reader or of the server is only ever set as text, never as HTML.

const DEBOUNCE = 250; // milliseconds after the last key stroke
const REQUEST = { lines: 32, characters: 4000 }; // at most: the first lines of a long text are shown early
const REMEMBERED = 2000; // lines whose translation is kept, so that typing asks for what changed
const ATTEMPTS = 8; // for a request that the server cannot take now
const N_BEST = 8, SHOWN = 5; // alternatives that are asked for, and that are shown
const DIVERSITY = 2; // nats: enough for groups to begin with other words
const DETECTED = 2000; // characters in which the language is detected
const LONGEST_FILE = 5e6; // bytes of a text, which is sent in parts
const POLL = { first: 200, factor: 1.5, most: 2000 }; // milliseconds between questions how far a file is
const RETRIED = new Map([
  [0, "The server does not answer."], [429, "This is more than the server takes from one reader."],
  [502, "The server does not answer."], [503, "The server is busy."],
]);
const ADVICE = new Map([[413, "Divide the text and translate its parts."], [504, "Try a shorter text."]]);
const FLAGS = {
  repeats_itself: ["Repeats itself", "The same words come again and again. Try other words or a shorter sentence."],
  copied: ["Copied", "It is nearly the same as the text, so it may not be translated."],
  hit_length_limit: ["May be incomplete", "It was cut off at the longest length that is allowed."],
  empty: ["Empty", "The model gave no translation."],
  cut: ["Cut", "The text is longer than the model takes, and only its beginning was translated."],
  split: ["In parts", "A long sentence was translated in parts, which do not know of each other."],
  unknown_source: ["Unknown characters", "The model does not know some characters of the text."],
  unmet_terms: ["Terms missing", "Not every term is in the translation."],
  placeholders_repaired: ["Placeholders repaired", "Some were damaged, and are where they belong again."],
  placeholders_inserted: ["Placeholders inserted", "Some were lost, and were put in beside their words."],
  numbers_changed: ["Numbers changed", "A number of the text is not in it, or in words."],
  tags_by_position: ["Tags placed roughly", "Mark-up is about as far in the text as it was in the original."],
  tags_empty: ["Empty tags", "Some mark-up has no words that it could be around."],
  kept: ["Not translated", "Some of the text stays as it was."],
  misplaced_terms: ["Terms misplaced", "A term is in the translation, but perhaps not for its phrase."],
};

const state = {
  models: [], limits: {}, canDetect: false,
  lines: [], // of the translation, as they are shown
  known: new Map(), // key → line
  versions: new Map(), // languages → SHA-256 of the models that translate them
  terms: [], // [source phrase, target phrase] for the chosen languages
  timer: 0, // of the next translation
  request: null, // AbortController of the translation in flight
  notBefore: 0, // when the server may be asked again, as Date.now()
  panel: null, // the open alternatives: {line, part, element, request}
};

const byId = (id) => document.getElementById(id);
const FORMATS = JSON.parse(byId("file").dataset.formats); // names by the endings of files
const PACKAGES = new Set(JSON.parse(byId("file").dataset.packages)); // names of those that are no text
const count = (n, noun) => `${n.toLocaleString("en")} ${noun}${n === 1 ? "" : "s"}`;
const lengthOf = (text) => { let n = 0; for (const _ of text) n++; return n; }; // in characters, not UTF-16 units

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

const button = (text, press) => element("button", { type: "button", textContent: text, onclick: press });
const small = (text) => element("p", { className: "small", textContent: text });
const warning = (text) => element("p", { className: "problem", role: "alert", textContent: text });

// A browser may refuse to keep anything.
function recall(storage, key) {
  try { return window[storage].getItem(key); } catch { return null; }
}
function remember(storage, key, value) {
  try { window[storage].setItem(key, value); } catch { /* then it is forgotten with the page */ }
}

// --- The server ----------------------------------------------------------------------------------------------------

class Problem extends Error {}

// The body of the server's answer, as "text" or "blob". Waits, and says so, while the server can take no request.
// Throws Problem with a line for the reader, or an AbortError.
async function ask(path, body, signal, as = "text") {
  for (let attempt = 1; attempt <= ATTEMPTS; attempt++) {
    await untilAllowed(signal);
    const answer = await request(path, body, signal, as);
    if (!RETRIED.has(answer.status)) {
      state.notBefore = 0;
      hideProblem();
      return accept(answer);
    }
    const seconds = Math.max(1, Math.ceil(Number(answer.retryAfter)) || Math.min(30, 2 ** (attempt - 1)));
    state.notBefore = Date.now() + 1000 * seconds;
    showProblem(`${RETRIED.get(answer.status)} Trying again in ${count(seconds, "second")}.`, "Try now");
  }
  throw new Problem(`The server could not take this in ${ATTEMPTS} attempts. Try again later.`);
}

const apiKey = () => recall("sessionStorage", "key") ?? byId("key").value;

// `body` is sent as JSON, or as a form.
async function request(path, body, signal, as) {
  const isForm = body instanceof FormData;
  const headers = body && !isForm ? { "Content-Type": "application/json" } : {};
  if (apiKey()) headers.Authorization = `Bearer ${apiKey()}`;
  const method = body ? "POST" : "GET";
  try {
    const answer = await fetch(path, { method, headers, body: isForm ? body : body && JSON.stringify(body), signal });
    const content = await answer[answer.ok ? as : "text"]();
    return { status: answer.status, retryAfter: answer.headers.get("Retry-After"), content };
  } catch (error) {
    if (signal?.aborted) throw error;
    return { status: 0, retryAfter: null, content: "" };
  }
}

function accept({ status, content }) {
  if (status === 200) return content;
  let line = `The server answered ${status}.`;
  try { line = String(JSON.parse(content).error || line); } catch { /* not ours: of a proxy, perhaps */ }
  if (status === 401 || status === 403) {
    byId("key-form").hidden = false;
    throw new Problem(apiKey() ? "The server does not accept this API key." : "The server needs an API key.");
  }
  throw new Problem([line, ADVICE.get(status)].filter(Boolean).join(" "));
}

function parse(text) {
  try { return JSON.parse(text); } catch { throw new Problem("The server's answer is not JSON. Is it `tfm serve`?"); }
}

// `body` has the text, and what else is asked for.
async function askTranslation(pair, body, signal) {
  const terms = termsFor(pair);
  return parse(await ask("api/translate", { ...pair, ...(terms.length && { terms }), ...body }, signal));
}

// URLs, numbers and {placeholders} of lines are kept.
const translatedTexts = (pair, lines, signal) =>
  askTranslation(pair, { text: lines.map((line) => line.source), placeholders: true }, signal);

// Resolves when the server may be asked again, or the reader presses the button; rejects when `signal` is aborted.
function untilAllowed(signal) {
  const wait = state.notBefore - Date.now();
  if (wait <= 0) return Promise.resolve();
  return new Promise((resolve, reject) => {
    const over = () => { clearTimeout(timer); byId("again").removeEventListener("click", over); };
    const go = () => { over(); state.notBefore = 0; resolve(); };
    const timer = setTimeout(go, wait);
    byId("again").addEventListener("click", go);
    signal?.addEventListener("abort", () => { over(); reject(signal.reason); });
  });
}

function showProblem(line, action = "Try again") {
  const place = byId("problem");
  place.hidden = false;
  if (place.firstChild.textContent !== line) place.firstChild.textContent = line;
  byId("again").textContent = action;
}

function hideProblem() {
  byId("problem").hidden = true;
  byId("problem").firstChild.textContent = "";
}

// --- Languages -----------------------------------------------------------------------------------------------------

async function loadModels() {
  try {
    const answer = parse(await ask("api/models"));
    Object.assign(state, { models: answer.models.flatMap(pairsOf), limits: answer.limits ?? {}, canDetect: answer.can_detect });
    byId("key-form").hidden = !answer.needs_key || recall("sessionStorage", "key") !== null;
  } catch (error) {
    showProblem(error.message);
    return;
  }
  const [source, target] = (recall("localStorage", "languages") ?? "").split(" ");
  fillSources(source);
  fillTargets(target);
  languagesChanged();
}

// A model between many languages lists these, and not each pair.
function pairsOf({ sources, targets, ...model }) {
  if (!sources) return [model];
  const pairs = Object.entries(sources).flatMap(([source, source_name]) =>
    Object.entries(targets).map(([target, target_name]) => ({ ...model, source, target, source_name, target_name })));
  return pairs.filter((pair) => pair.source !== pair.target);
}

function fill(select, options, wanted) {
  select.replaceChildren(...[...options].map(([value, text]) => element("option", { value, textContent: text })));
  if (options.has(wanted)) select.value = wanted;
}

function fillSources(wanted) {
  const sources = new Map(state.models.map((model) => [model.source, model.source_name || model.source]));
  const detect = state.canDetect && sources.size > 1 ? [["auto", "Detect language"]] : [];
  fill(byId("source"), new Map([...detect, ...sources]), wanted);
}

function fillTargets(wanted) {
  const source = byId("source").value;
  const models = state.models.filter((model) => source === "auto" || model.source === source);
  fill(byId("target"), new Map(models.map((model) => [model.target, model.target_name || model.target])), wanted);
}

const chosen = () => ({ source: byId("source").value, target: byId("target").value });
const modelFor = ({ source, target }) =>
  state.models.find((model) => model.source === source && model.target === target);
const nameOf = (code) => {
  const model = state.models.find((one) => one.source === code || one.target === code);
  return (model && (model.source === code ? model.source_name : model.target_name)) || code;
};
const languageTag = (code) => (code === "auto" ? "" : code.replaceAll("_", "-"));

function languagesChanged() {
  const pair = chosen(), model = modelFor(pair);
  remember("localStorage", "languages", `${pair.source} ${pair.target}`);
  byId("text").lang = languageTag(pair.source);
  byId("about").textContent = model ? about(model) : "";
  byId("terms").hidden = Boolean(model?.pivot);
  byId("swap").hidden = !state.models.some((one) => modelFor({ source: one.target, target: one.source }));
  byId("swap").disabled = pair.source !== "auto" && !modelFor({ source: pair.target, target: pair.source });
  loadTerms();
  translate();
}

const about = (model) => [model.name, model.pivot && `through ${nameOf(model.pivot)}`].filter(Boolean).join(", ");

function swap() {
  const pair = chosen(), source = pair.source === "auto" ? state.detected : pair.source;
  if (!source || !modelFor({ source: pair.target, target: source })) return;
  const isWhole = state.lines.map((line) => line.source).join("\n") === byId("text").value
    && state.lines.every((line) => line.parts?.length || !line.source.trim());
  const translation = wholeTranslation();
  fillSources(pair.target);
  fillTargets(source);
  if (isWhole) replaceText(translation); // or text would be lost
  languagesChanged();
}

// --- Translating as the reader types -------------------------------------------------------------------------------

function textChanged() {
  const text = byId("text");
  byId("count").textContent = text.value ? count(lengthOf(text.value), "character") : "";
  byId("clear").hidden = !text.value;
  if (!CSS.supports("field-sizing", "content")) {
    text.style.height = "auto";
    text.style.height = `${text.scrollHeight + 2}px`;
  }
}

function translateSoon(event) {
  textChanged();
  clearTimeout(state.timer);
  if (!event.isComposing) state.timer = setTimeout(translate, DEBOUNCE);
}

// Asks for the lines that are not known. A later call aborts this one, so no answer comes out of order.
async function translate() {
  clearTimeout(state.timer);
  state.request?.abort();
  const { signal } = (state.request = new AbortController());
  const text = byId("text").value;
  if (text.trim()) say("Translating…");
  try {
    const pair = await resolved(chosen(), text, signal);
    if (signal.aborted) return;
    const lines = linesFor(text, pair);
    show(lines);
    for (const group of groups(lines.filter((line) => !line.parts))) {
      const answer = await translatedTexts(pair, group, signal);
      if (signal.aborted) return;
      if (isReplaced(pair, answer.model)) {
        state.known.clear();
        translate();
        return;
      }
      group.forEach((line, i) => receive(line, answer.translations[i]));
      show(lines);
    }
    finish(lines);
  } catch (error) {
    if (signal.aborted) return;
    say("");
    const line = "The server's answer has another form than this page reads. Load it again.";
    showProblem(error instanceof Problem ? error.message : line);
  }
}

// The languages, with the one that is detected in all of the text: a line by itself may be too short to tell.
async function resolved(pair, text, signal) {
  if (pair.source !== "auto" || !text.trim()) return pair;
  const found = parse(await ask("detect", { q: text.slice(0, DETECTED) }, signal));
  const base = (code) => code.split(/[-_]/)[0].toLowerCase();
  const usable = found.flatMap(({ language }) =>
    state.models.filter((model) => base(model.source) === base(language) && model.target === pair.target));
  const target = nameOf(pair.target);
  if (found.length && base(found[0].language) === base(pair.target))
    throw new Problem(`The text seems to be ${target} already. Choose its language, or another to translate into.`);
  if (!usable.length) throw new Problem(`No language is recognised that can be translated into ${target}. Choose one.`);
  state.detected = usable[0].source;
  byId("about").textContent = `Detected: ${nameOf(state.detected)}`;
  return { source: state.detected, target: pair.target };
}

// The lines of a text: those that are known, and new ones. Of equal lines each is a line of its own, because the reader
// may change one of them.
function linesFor(text, pair) {
  const seen = new Map(), terms = termsFor(pair);
  return text.split("\n").map((source) => {
    const nth = seen.get(source) ?? 0;
    seen.set(source, nth + 1);
    const key = JSON.stringify([pair.source, pair.target, terms, nth, source]);
    return state.known.get(key) ?? newLine({ key, source, pair });
  });
}

function newLine(line) {
  const length = lengthOf(line.source);
  Object.assign(line, { flags: [], before: "", element: null });
  if (!line.source.trim()) line.parts = [];
  else if (length > most()) {
    line.parts = [];
    line.note = tooLong("This line", length);
  }
  return line;
}

const most = () => state.limits.max_characters ?? Infinity;
const tooLong = (what, length) =>
  `${what} has ${count(length, "character")}, and the server takes ${most().toLocaleString("en")} at once. Divide it.`;

// As many lines as go into one request.
function* groups(lines) {
  const mostCharacters = Math.min(REQUEST.characters, most());
  const mostLines = Math.min(REQUEST.lines, state.limits.max_texts ?? Infinity);
  let group = [], size = 0;
  for (const line of lines) {
    const length = lengthOf(line.source);
    if (group.length && (group.length === mostLines || size + length > mostCharacters)) {
      yield group;
      [group, size] = [[], 0];
    }
    group.push(line);
    size += length;
  }
  if (group.length) yield group;
}

function receive(line, translation) {
  line.flags = translation.flags ?? [];
  line.details = translation;
  const text = translation.text.trimStart();
  line.before = translation.text.slice(0, translation.text.length - text.length);
  line.parts = pairSentences(line.source, text);
  state.known.set(line.key, line);
}

// Not again what is there: a screen reader would read it with each key stroke.
function say(text) {
  if (byId("status").textContent !== text) byId("status").textContent = text;
}

function finish(lines) {
  if (state.known.size > REMEMBERED) state.known = new Map(lines.map((line) => [line.key, line]));
  const translated = lines.some((line) => line.parts?.length);
  say(translated ? "Translated" : "");
  if (!translated) hideProblem();
}

// Whether the model is another than that of earlier answers, so that these do not go together with those to come.
function isReplaced({ source, target }, model) {
  const languages = `${source} ${target}`, before = state.versions.get(languages);
  const version = (model.steps ?? [model]).map((one) => one.sha256).join();
  state.versions.set(languages, version);
  return before !== undefined && before !== version;
}

function clear() {
  replaceText("");
  translate();
  byId("text").focus();
}

// So that the reader can undo it.
function replaceText(value) {
  const text = byId("text"), focused = document.activeElement;
  text.focus();
  text.select();
  if (!document.execCommand(value ? "insertText" : "delete", false, value)) text.value = value;
  focused.focus();
  textChanged();
}

// --- Sentences and words -------------------------------------------------------------------------------------------

const segments = (text, granularity) =>
  Intl.Segmenter ? [...new Intl.Segmenter(undefined, { granularity }).segment(text)] : [{ segment: text, index: 0 }];

// Sentences of a line, each with the white space `after` it.
function sentencesOf(text) {
  return segments(text, "sentence").map(({ segment }) => {
    const sentence = segment.trimEnd();
    return { text: sentence, after: segment.slice(sentence.length) };
  }).filter((one) => one.text);
}

// Each sentence of the translation with that of the source: where both have as many, or else the line as a whole.
function pairSentences(source, translation) {
  const sources = sentencesOf(source), targets = sentencesOf(translation);
  if (sources.length !== targets.length) return [{ source: source.trim(), text: translation, after: "" }];
  return targets.map((target, i) => ({ ...target, source: sources[i].text.trim() }));
}

const wordsOf = (text) => segments(text, "word").filter((one) => one.isWordLike !== false);

const textOf = (line) => line.before + (line.parts ?? []).map((part) => part.text + part.after).join("");
const wholeTranslation = () => state.lines.map(textOf).join("\n");

// --- The translation on the page -----------------------------------------------------------------------------------

function show(lines) {
  const output = byId("translation"), old = state.lines;
  const elements = lines.map((line, i) => (line.parts ? (line.element ??= draw(line)) : waiting(line, old[i])));
  state.lines = lines.map((line, i) => (line.parts ? line : { ...line, shown: shownOf(old[i]) }));
  const wanted = new Set(elements);
  for (const child of [...output.children]) if (!wanted.has(child)) child.remove();
  let next = output.firstChild; // elements that stay are not moved, or they would lose the focus
  for (const one of elements) {
    if (one === next) next = next.nextSibling;
    else output.insertBefore(one, next);
  }
  if (state.panel && !state.panel.element.isConnected) closePanel(false);
  const sentences = [...output.querySelectorAll(".sentence")];
  if (sentences.length && !sentences.some((one) => one.tabIndex === 0)) sentences[0].tabIndex = 0;
  byId("copy").hidden = byId("hint").hidden = !sentences.length;
  byId("copy").disabled = lines.some((line) => !line.parts); // what is copied is whole
}

// What is shown of a line until its translation is there.
const shownOf = (line) => (line ? (line.shown ?? textOf(line)) : "");

const lineElement = (line, className, ...children) =>
  element("div", { className, lang: languageTag(line.pair.target) }, ...children);

const waiting = (line, old) =>
  lineElement(line, "line waiting", element("p", { dir: "auto", textContent: shownOf(old) || "…" }));

function draw(line) {
  line.element ??= lineElement(line, "line");
  const text = element("p", { dir: "auto" }, line.before);
  for (const part of line.parts) text.append(drawSentence(line, part), part.after);
  if (!line.parts.length) text.append(element("br"));
  const notes = line.note ? [["Too long", line.note]] : line.flags.map((flag) => explain(flag, line.details));
  const list = element("ul", { className: "flags", lang: "en" }, ...notes.map(([name, explanation]) =>
    element("li", {}, element("strong", { textContent: `${name}.` }), ` ${explanation}`)));
  line.element.replaceChildren(text, ...(notes.length ? [list] : []));
  return line.element;
}

function explain(flag, details = {}) {
  const [name, explanation] = FLAGS[flag] ?? [flag.replaceAll("_", " "), ""];
  const named = {
    unmet_terms: details.unmet_terms?.map((term) => term.join(" → ")), unknown_source: details.unknown_characters,
  }[flag];
  const isolated = named?.map((one) => `\u2068${one}\u2069`); // of either direction of writing
  return [name, named?.length ? `${explanation} (${isolated.join(", ")})` : explanation];
}

function drawSentence(line, part) {
  const sentence = element("span", { className: "sentence", tabIndex: -1, role: "button", ariaExpanded: "false" });
  let end = 0;
  for (const { segment, index } of wordsOf(part.text)) {
    sentence.append(part.text.slice(end, index), element("span", { className: "word", textContent: segment }));
    end = index + segment.length;
  }
  sentence.append(part.text.slice(end));
  part.element = sentence;
  sentence.addEventListener("click", ({ target }) => {
    if (!getSelection().isCollapsed) return; // the reader selects text
    openPanel(line, part, Math.max(0, [...sentence.querySelectorAll(".word")].indexOf(target)));
  });
  sentence.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    openPanel(line, part, 0, true);
  });
  return sentence;
}

function moveBetweenSentences(event) {
  const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
  if (!step || !event.target.matches(".sentence")) return;
  const all = [...byId("translation").querySelectorAll(".sentence")];
  const next = all[all.indexOf(event.target) + step];
  if (!next) return;
  event.preventDefault();
  next.focus();
}

function onlyTabStop({ target }) {
  if (!target.matches(".sentence")) return;
  for (const one of byId("translation").querySelectorAll('.sentence[tabindex="0"]')) one.tabIndex = -1;
  target.tabIndex = 0;
}

// --- Alternatives --------------------------------------------------------------------------------------------------

function openPanel(line, part, word, takesFocus = false) {
  if (state.panel?.part === part) {
    chooseWord(word);
    if (takesFocus) state.panel.element.querySelector("input:checked")?.focus();
    return;
  }
  closePanel(false);
  // Where two models translate one after the other, there are neither prefixes nor attention weights.
  const isDirect = !modelFor(line.pair)?.pivot;
  const words = isDirect ? wordsOf(part.text) : [];
  const bar = element("div", { className: "bar" }, button("Close", () => closePanel()));
  if (isDirect) bar.prepend(button("Show attention", () => showAttention(line, part)));
  const panel = element("section", { className: "panel", ariaLabel: "Other translations" }, bar);
  if (words.length) panel.append(wordPicker(line, words));
  panel.append(element("div", { className: "found" }));
  part.element.ariaExpanded = "true";
  part.element.classList.add("open");
  part.element.closest("p").after(panel);
  state.panel = { line, part, words, element: panel, request: null, known: new Map() };
  chooseWord(word);
  if (takesFocus) (panel.querySelector("input:checked") ?? panel.querySelector("button")).focus();
}

function wordPicker(line, words) {
  const choices = words.map(({ segment }, i) => {
    const input = element("input", { type: "radio", name: "word", value: i, autocomplete: "off" });
    input.addEventListener("change", () => chooseWord(i));
    return element("label", {}, input, element("span", { textContent: segment }));
  });
  return element("fieldset", {}, element("legend", { textContent: "Change the translation from this word on" }),
    element("div", { className: "segments", lang: languageTag(line.pair.target), dir: "auto" }, ...choices));
}

function closePanel(givesFocusBack = true) {
  if (!state.panel) return;
  const { part, element: panel, request } = state.panel;
  request?.abort();
  panel.remove();
  part.element.ariaExpanded = "false";
  part.element.classList.remove("open");
  state.panel = null;
  if (givesFocusBack) part.element.focus();
}

// Shows what may follow the words before the one with this index, and other translations of the whole sentence.
async function chooseWord(index) {
  const panel = state.panel, { line, part, words } = panel;
  const radio = panel.element.querySelector(`input[value="${index}"]`);
  if (radio) radio.checked = true;
  panel.request?.abort();
  const { signal } = (panel.request = new AbortController());
  const found = panel.element.querySelector(".found");
  const prefix = part.text.slice(0, words[index]?.index ?? 0).trimEnd();
  const slow = setTimeout(() => found.replaceChildren(small("Looking for others…")), 300);
  try {
    const here = words.length ? await diverseCandidates(panel, prefix, signal) : [];
    const whole = await candidates(panel, "", false, signal);
    if (signal.aborted) return;
    const shown = new Set([part.text]), others = withOtherWords(here, prefix, part.text);
    found.replaceChildren(
      ...candidateList(line, part, prefix, others, shown, `From “${words[index]?.segment}” on`),
      ...candidateList(line, part, "", whole, shown, "The whole sentence"),
    );
    const n = found.querySelectorAll("button").length;
    if (!n) found.append(small("The model found no other translation."));
    say(n ? count(n, "other translation") : "No other translation");
  } catch (error) {
    if (signal.aborted) return;
    found.replaceChildren(warning(error.message));
  } finally {
    clearTimeout(slow);
  }
}

// Translations that begin with `prefix`. Diverse ones differ at once, as each group of the beam takes another word.
async function candidates(panel, prefix, diverse, signal) {
  const key = `${prefix}\0${diverse}`;
  if (!panel.known.has(key)) {
    const beam = Math.min(N_BEST, state.limits.beam_size ?? N_BEST);
    const groups = diverse ? { diversity_groups: beam, diversity_strength: DIVERSITY } : {};
    const body = { text: panel.part.source, n_best: beam, beam_size: beam, ...groups, ...(prefix && { prefix }) };
    const [best] = (await askTranslation(panel.line.pair, body, signal)).translations;
    panel.known.set(key, [best.text, ...(best.alternatives ?? []).map((one) => one.text)].map((text) => text.trim()));
  }
  return panel.known.get(key);
}

// Not every engine has diverse beam search.
async function diverseCandidates(panel, prefix, signal) {
  try {
    return await candidates(panel, prefix, true, signal);
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    return candidates(panel, prefix, false, signal);
  }
}

// The best of each next word first, then the rest; but none that makes the last word of the prefix longer.
function withOtherWords(texts, prefix, current) {
  const letter = /[\p{L}\p{N}\p{M}]/u;
  const follows = (text) => !letter.test(text.charAt(prefix.length)) || letter.test(current.charAt(prefix.length));
  const seen = new Set([firstWord(current.slice(prefix.length))]);
  const usable = texts.filter((text) => !prefix || follows(text));
  const other = new Set(usable.filter((text) => {
    const word = firstWord(text.slice(prefix.length));
    return !seen.has(word) && seen.add(word);
  }));
  return [...other, ...usable.filter((text) => !other.has(text))];
}

const firstWord = (text) => text.trimStart().split(/\s/u)[0];

function candidateList(line, part, prefix, texts, shown, title) {
  const others = texts.filter((text) => text && !shown.has(text) && shown.add(text)).slice(0, SHOWN);
  if (!others.length) return [];
  const list = element("ul", { className: "candidates", lang: languageTag(line.pair.target) }, ...others.map((text) => {
    const same = text.startsWith(prefix) ? prefix.length : 0;
    const press = button("", () => replaceSentence(line, part, text), { dir: "auto" });
    press.append(element("span", { className: "same", textContent: text.slice(0, same) }), text.slice(same));
    return element("li", {}, press);
  }));
  return [element("h3", { textContent: title }), list];
}

function replaceSentence(line, part, text) {
  closePanel(false);
  part.text = text;
  // The flags are those of the first translation; which of its sentences they are of is not known.
  if (line.parts.length === 1) line.flags = line.flags.filter((flag) => flag === "unknown_source");
  draw(line);
  part.element.focus();
  say("Sentence replaced");
}

// --- Attention -----------------------------------------------------------------------------------------------------

async function showAttention(line, part) {
  const place = byId("attention"), note = small("Calculating…");
  for (const old of place.querySelectorAll("iframe, p")) old.remove();
  place.hidden = false;
  place.append(note);
  state.attention?.abort();
  const { signal } = (state.attention = new AbortController());
  state.attentionOf = part;
  byId("attention-title").focus();
  place.scrollIntoView({ block: "nearest" });
  try {
    const html = await ask("api/attention", { text: part.source, ...line.pair, translation: part.text }, signal);
    if (signal.aborted) return;
    const frame = element("iframe", { title: `Attention of “${part.source}”`, srcdoc: html });
    frame.sandbox.add("allow-scripts"); // and not allow-same-origin: the page in it is as that of a stranger's site
    note.replaceWith(frame);
    place.scrollIntoView({ block: "start" });
  } catch (error) {
    if (!signal.aborted) note.replaceWith(warning(error.message));
  }
}

function closeAttention() {
  state.attention?.abort();
  byId("attention").hidden = true;
  for (const old of byId("attention").querySelectorAll("iframe, p")) old.remove();
  const sentence = state.attentionOf?.element;
  if (sentence?.isConnected) sentence.focus();
}

// --- Files ---------------------------------------------------------------------------------------------------------

async function translateFile(file) {
  const controller = new AbortController();
  const note = element("span", { role: "status", textContent: "Translating…" });
  const bar = element("progress", { max: 1, ariaLabel: `Progress of ${file.name}` });
  const job = element("li", {}, element("strong", { textContent: file.name, dir: "auto" }), bar, note, " ");
  const end = button("Cancel", () => {
    controller.abort();
    job.remove();
    byId("choose-file").focus();
  });
  job.append(end);
  byId("jobs").append(job);
  try {
    const ending = file.name.includes(".") ? `.${file.name.split(".").at(-1).toLowerCase()}` : "";
    const { target } = chosen();
    const progress = (share) => {
      bar.value = share;
      note.textContent = `Translating… ${Math.floor(100 * share)} %`;
    };
    const translation = await translatedFile(file, FORMATS[ending], controller.signal, progress);
    const name = `${file.name.slice(0, -ending.length)}.${target}${ending}`;
    // Not as HTML: a browser that opens it must not take it for a page of this server.
    const blob = new Blob([translation.content], { type: "application/octet-stream" });
    note.textContent = translation.note;
    end.before(element("a", { href: URL.createObjectURL(blob), download: name, textContent: `Download ${name}` }), " ");
  } catch (error) {
    if (controller.signal.aborted) return;
    note.textContent = error instanceof Problem ? error.message : `It could not be read: ${error.message}`;
    note.className = "problem";
  }
  bar.remove();
  end.textContent = "Remove";
}

// A text goes with its flags into requests that others do not wait for long; the server keeps all else until it is done.
async function translatedFile(file, format, signal, progress) {
  const wanted = chosen();
  if (!format) throw new Problem(`Not a kind of file that is known. Known: ${Object.keys(FORMATS).join(", ")}.`);
  if (PACKAGES.has(format)) return translatedDocument(file, file.name, wanted, signal, progress);
  checkSize(file.size, LONGEST_FILE);
  const text = decode(await file.arrayBuffer());
  const pair = await resolved(wanted, text, signal);
  if (format === "text") return translatedLines(text, pair, signal, progress);
  if (lengthOf(text) > most()) return translatedDocument(new Blob([text]), file.name, pair, signal, progress);
  const answer = await askTranslation(pair, { text, format }, signal);
  return { content: answer.translations[0].text, note: summary(answer.translations) };
}

function checkSize(size, most) {
  if (size > most) throw new Problem(`Larger than ${most / 1e6} MB. Use \`tfm translate\` for it.`);
}

// A file of any format, which the server translates while it is asked how far it is.
async function translatedDocument(content, name, pair, signal, progress) {
  checkSize(content.size, state.limits.max_bytes ?? LONGEST_FILE);
  const form = new FormData(), terms = termsFor(pair);
  form.append("file", content, name);
  if (pair.source !== "auto") form.append("source", pair.source);
  form.append("target", pair.target);
  if (terms.length) form.append("terms", JSON.stringify(terms));
  const { id, key } = parse(await ask("api/document", form, signal)), path = `api/document/${id}`;
  const cancel = () => request(`${path}/cancel`, { key }, undefined, "text");
  signal.addEventListener("abort", cancel);
  try {
    for (let wait = POLL.first; ; wait = Math.min(POLL.most, POLL.factor * wait)) {
      const found = parse(await ask(path, { key }, signal));
      if (found.error) throw new Problem(found.error);
      if (found.status === "done")
        return { content: await ask(`${path}/result`, { key }, signal, "blob"), note: summary([found]) };
      progress(found.progress);
      await pause(wait, signal);
    }
  } finally {
    signal.removeEventListener("abort", cancel);
  }
}

function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => { clearTimeout(timer); reject(signal.reason); }, { once: true });
  });
}

async function translatedLines(text, pair, signal, progress) {
  const lines = text.split(/(\r?\n)/); // and the line ends between them
  const wanted = lines.map((source, index) => ({ source, index })).filter((line) => line.source.trim());
  const found = [];
  const long = wanted.find((line) => lengthOf(line.source) > most());
  if (long) throw new Problem(tooLong(`Line ${long.index / 2 + 1}`, lengthOf(long.source)));
  for (const group of groups(wanted)) {
    const answer = await translatedTexts(pair, group, signal);
    group.forEach((line, i) => { lines[line.index] = answer.translations[i].text; });
    found.push(...answer.translations);
    progress(found.length / wanted.length);
  }
  return { content: lines.join(""), note: summary(found) };
}

function summary(translations) {
  const flags = new Set(translations.flatMap((one) => one.flags ?? []));
  const names = [...flags].map((flag) => explain(flag)[0].toLowerCase());
  return names.length ? `Translated. To check: ${names.join(", ")}.` : "Translated.";
}

// Text of a file: UTF-8, or UTF-16 with its mark.
function decode(buffer) {
  const [first, second] = new Uint8Array(buffer);
  const encoding = { "255 254": "utf-16le", "254 255": "utf-16be" }[`${first} ${second}`] ?? "utf-8";
  try {
    return new TextDecoder(encoding, { fatal: true }).decode(buffer);
  } catch {
    throw new Problem("It is not text in UTF-8. Save it as UTF-8 and choose it again.");
  }
}

// --- Terms ---------------------------------------------------------------------------------------------------------

// Where two models translate one after the other, there are none.
const termsFor = (pair) =>
  modelFor(pair)?.pivot ? [] : state.terms.filter(([source, target]) => source.trim() && target.trim());

const termsKey = () => `terms ${byId("source").value} ${byId("target").value}`;

function loadTerms() {
  state.terms = [];
  try {
    const kept = JSON.parse(recall("localStorage", termsKey()) ?? "[]");
    state.terms = kept.filter((term) => term.length === 2 && term.every((one) => typeof one === "string"));
  } catch { /* of another program */ }
  showTerms();
}

function showTerms() {
  byId("term-rows").replaceChildren(...state.terms.map(termRow));
  countTerms();
}

function termRow(term, i) {
  const input = (side, label, select) => element("input", {
    value: term[side], placeholder: label, ariaLabel: `${label} ${i + 1}`, lang: languageTag(byId(select).value),
    dir: "auto", autocomplete: "off", oninput: ({ target }) => { term[side] = target.value; termsChanged(); },
  });
  const remove = button("Remove", () => {
    state.terms.splice(i, 1);
    showTerms();
    termsChanged();
    byId("add-term").focus();
  });
  remove.ariaLabel = `Remove term ${i + 1}`;
  const arrow = element("span", { textContent: "→", ariaHidden: "true" });
  return element("li", {}, input(0, "Source phrase", "source"), arrow, input(1, "Target phrase", "target"), remove);
}

function termsChanged() {
  remember("localStorage", termsKey(), JSON.stringify(state.terms));
  countTerms();
  clearTimeout(state.timer);
  state.timer = setTimeout(translate, 2 * DEBOUNCE);
}

function countTerms() {
  byId("n-terms").textContent = state.terms.length ? `(${state.terms.length})` : "";
}

function addTerm() {
  state.terms.push(["", ""]);
  showTerms();
  byId("term-rows").lastChild.querySelector("input").focus();
}

// --- Controls ------------------------------------------------------------------------------------------------------

async function copy() {
  const press = byId("copy");
  try {
    await navigator.clipboard.writeText(wholeTranslation());
    press.textContent = "Copied";
  } catch { // not allowed here: leave it selected, for the reader to copy
    getSelection().selectAllChildren(byId("translation"));
    press.textContent = "Selected";
  }
  setTimeout(() => { press.textContent = "Copy"; }, 2000);
}

function useKey(event) {
  event.preventDefault();
  remember("sessionStorage", "key", byId("key").value);
  byId("key-form").hidden = true;
  hideProblem();
  if (state.models.length) translate();
  else loadModels();
}

function escape(event) {
  if (event.key !== "Escape" || event.isComposing) return;
  if (state.panel) closePanel();
  else if (!byId("attention").hidden) closeAttention();
}

byId("text").addEventListener("input", translateSoon);
byId("text").addEventListener("compositionend", translateSoon);
byId("source").addEventListener("change", () => { fillTargets(byId("target").value); languagesChanged(); });
byId("target").addEventListener("change", languagesChanged);
byId("swap").addEventListener("click", swap);
byId("clear").addEventListener("click", clear);
byId("copy").addEventListener("click", copy);
byId("key-form").addEventListener("submit", useKey);
byId("again").addEventListener("click", () => {
  if (state.notBefore > Date.now()) return; // a request is waiting, and hears this, too
  hideProblem();
  if (state.models.length) translate();
  else loadModels();
});
byId("translation").addEventListener("keydown", moveBetweenSentences);
byId("translation").addEventListener("focusin", onlyTabStop);
byId("close-attention").addEventListener("click", closeAttention);
byId("add-term").addEventListener("click", addTerm);
byId("choose-file").addEventListener("click", () => byId("file").click());
byId("file").addEventListener("change", ({ target }) => {
  for (const file of target.files) translateFile(file);
  target.value = ""; // the same file may be chosen again
});
addEventListener("keydown", escape);
addEventListener("storage", ({ key }) => { if (key === termsKey()) { loadTerms(); translate(); } });
for (const kind of ["dragenter", "dragover", "dragleave", "drop"])
  addEventListener(kind, (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return; // text may be dropped into the text
    event.preventDefault();
    document.body.classList.toggle("dropping", kind === "dragenter" || kind === "dragover");
    if (kind === "drop") for (const file of event.dataTransfer.files) translateFile(file);
  });
byId("kinds").textContent = `${Object.keys(FORMATS).join(", ")}. Texts in UTF-8.`;
textChanged();
loadModels();
