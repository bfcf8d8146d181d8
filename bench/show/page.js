"use strict";
// What page.py's data() describes, drawn. State: what the heat map was asked for, and what each control says.
const D = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const text = (place) => D.strings[place];
document.documentElement.classList.add("scripted");

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}
function drawn(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}
function options(select, values, texts = values) {
  select.replaceChildren(...values.map((value, i) => element("option", { value }, texts[i])));
}

// Names may break behind a slash, a dot and an underscore, and nowhere else.
function breakable(said) {
  return said.split(/(?<=[/._])(?=[a-z])/).flatMap((part, i) => i ? [element("wbr"), part] : [part]);
}
// One tab stop for all of a grid of elements, null where there is none; arrow keys walk in it.
const STEPS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
function rove(grid) {
  const all = grid.flat().filter(Boolean);
  const enter = (chosen) => all.forEach((each) => each.setAttribute("tabindex", each === chosen ? 0 : -1));
  enter(all[0]);
  grid.forEach((line, row) => line.forEach((each, column) => {
    if (!each) return;
    each.addEventListener("focus", () => enter(each));
    each.addEventListener("keydown", (event) => {
      const [down, right] = STEPS[event.key] || [0, 0];
      if (!down && !right) return;
      let [i, j] = [row + down, column + right];
      while (i in grid && j in grid[i] && !grid[i][j]) [i, j] = [i + down, j + right];
      if (!grid[i]?.[j]) return;
      event.preventDefault();
      grid[i][j].focus();
    });
  }));
}
// A mark of a plot: a button that tells by pointing, focus, click, Enter and Space.
function markOf(label, told, ...children) {
  const mark = drawn("g", { class: "mark", role: "button", "aria-label": label }, ...children);
  for (const event of ["focus", "pointerenter", "click"]) mark.addEventListener(event, told);
  mark.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    told();
  });
  return mark;
}

// As Python's format(value, ".2f"): of two that are equally near the even one.
function fixed(value, digits) {
  const near = value.toFixed(digits), exact = value.toFixed(60);
  const [kept, rest] = [exact.slice(0, exact.length - 60 + digits), exact.slice(exact.length - 60 + digits)];
  return /^50*$/.test(rest) && Number(kept.at(-1)) % 2 === 0 ? kept : near;
}

// --- The answer -------------------------------------------------------------------------------------------------

function whereLine(asked, sizes, apart, dtype, clock) {
  const other = dtype === $("dtype").value ? "" : ` in ${dtype}`;
  return apart === 0 ? `Recorded at exactly this shape${other}, ${D.clocks[clock]}.`
    : `Recorded at ${sizes.join("x")}${other} (you asked ${asked.join("x")}), ${D.clocks[clock]}.`;
}

// As how_far of show/answer.py has it.
function howFar(asked, sizes) {
  return ["M", "N", "K"].flatMap((name, i) => {
    const [one, other] = [asked[i], sizes[i]];
    const [larger, smaller] = [Math.max(one, other), Math.min(one, other)];
    if (larger === smaller) return [];
    if (larger - smaller < D.leastFar * smaller) {
      return [`Its ${name} is ${larger - smaller} ${other > one ? "more" : "less"} than yours.`];
    }
    const times = fixed(larger / smaller, 2).replace(/\.?0+$/, "");
    return [other > one ? `Its ${name} is ${times}x yours.` : `Your ${name} is ${times}x its ${name}.`];
  }).join(" ");
}

// As common/distance.py has it; the layout is that of the kind, which a weight of 4 bits for fp32 is none of.
function bytesOfCopies([, n, k], dtype, kind) {
  const elements = D.flags[kind]?.startsWith("--layout kn") ? [n, k] : [k];
  const whole = (bytes) => elements.every((size) => size * (dtype === "fp32" ? 4 : 2) % bytes === 0);
  let bytes = D.widest;
  while (!whole(bytes)) bytes /= 2;
  return bytes;
}
function gap(one, other, copiesDiffer) {
  const whole = (end) => [0, 1, 2].reduce((product, i) => product * end(one[i], other[i]), 1);
  return Math.log2(whole(Math.max) / whole(Math.min)) + (copiesDiffer ? D.otherRows : 0);
}

const isFourBits = () => $("op").value === "w4a16";
const usualDtype = () => isFourBits() ? "fp16" : "bf16";
const usualDevice = $("device").value;
const ofDevice = () => D.devices[$("device").value];
const kindAsked = () => D.asked[isFourBits() ? `w4a16 ${$("dtype").value}`
  : ["matmul", ...["dtype", "layout", "epilogue"].map((id) => $(id).value)].join(" ")];

// Asks for what flags of bench/answer.py ask for, by a clock that it was timed with.
function askFor(flags) {
  const asked = Object.fromEntries([...flags.matchAll(/--(\w+) (\w+)/g)].map(([, name, value]) => [name, value]));
  $("op").value = asked.op ?? "matmul";
  const usual = { dtype: usualDtype(), layout: "nk", epilogue: "none" };
  for (const [name, value] of Object.entries(usual)) $(name).value = asked[name] ?? value;
  const clocks = Object.keys(D.clocks).filter((clock) => ofDevice().answers[`${kindAsked()}/${clock}//0`]);
  if (clocks.length && !clocks.includes($("clock").value)) $("clock").value = clocks[0];
  answered();
  $("answered").focus();
}
// A button that asks for its flags; a line whose flags are such buttons.
const flagsButton = (flags) =>
  element("button", { type: "button", class: "flags", onclick: () => askFor(flags) }, flags);
function flagged(line) {
  return element("p", {}, ...line.split(/(--\w+ \w+(?: --\w+ \w+)*)/).map((part, i) =>
    i % 2 ? flagsButton(part) : part));
}

function boxTable(lines, ...heads) {
  return element("table", {}, ...heads, element("tbody", {}, ...lines.map(([label, ...cells]) => element("tr", {},
    element("th", { scope: "row" }, ...breakable(text(label))),
    ...cells.map((cell) => element("td", {}, ...breakable(text(cell))))))));
}

// What is wrong with the sizes, and of which: null where nothing is.
function refused() {
  const sizes = ["m", "n", "k"], size = (id) => Number($(id).value);
  const large = sizes.find((id) => size(id) >= 10 ** D.mostDigits);
  if (large) return [large, `${large.toUpperCase()} is ${$(large).value}; accepted: at most ${D.mostDigits} digits.`];
  const wrong = sizes.find((id) => !(Number.isSafeInteger(size(id)) && size(id) > 0));
  if (wrong) return [wrong, $(wrong).value === "" ? `${wrong.toUpperCase()} is empty.` : "M, N and K are positive integers."];
  const odd = isFourBits() && ["n", "k"].find((id) => $(id).value % D.multiples[id]);
  return odd ? [odd, `${odd.toUpperCase()} is ${$(odd).value}; accepted with a weight of 4 bits: multiples of ${D.multiples[odd]}.`] : null;
}

let toBeHeard;
function answered() {
  const value = (id) => $(id).value;
  $("layout").disabled = $("epilogue").disabled = isFourBits();
  const asked = ["m", "n", "k"].map((id) => Number(value(id)));
  const wrong = refused();
  for (const id of ["m", "n", "k"]) $(id).setAttribute("aria-invalid", String(wrong?.[0] === id));
  $("timing").hidden = Boolean(wrong);
  const said = wrong ? [element("p", {}, wrong[1])] : answerTo(asked);
  $("answered").replaceChildren(...said);
  clearTimeout(toBeHeard);  // a screen reader hears the first line, and no more than that, when typing has ended
  toBeHeard = setTimeout(() => { $("heard").textContent = said[0].textContent; }, 300);
  const flag = (name, usual) => value(name) === usual || $(name).disabled ? [] : [`--${name}`, value(name)];
  const words = [asked.join("x"), ...flag("op", "matmul"), ...flag("dtype", usualDtype()),
    ...flag("layout", "nk"), ...flag("epilogue", "none"), ...flag("clock", "cold"), ...flag("language", ""), ...flag("device", usualDevice),
    ...($("deterministic").checked ? ["--deterministic"] : [])];
  $("measure").textContent = `python bench/answer.py ${words.join(" ")} --measure`;
}

// [how far, the answer] of the nearest of a kind's.
function nearestOf(found, asked, kind) {
  let apart = Infinity, taken = null;
  const yours = bytesOfCopies(asked, $("dtype").value, kind);
  for (const entry of found) {
    const distance = gap(entry, asked, bytesOfCopies(entry, entry[3], kind) !== yours);
    const better = distance === apart && entry[3] === $("dtype").value && taken[3] !== $("dtype").value;
    if (distance < apart || better) [apart, taken] = [distance, entry];
  }
  return [apart, taken];
}

function answerTo(asked) {
  const value = (id) => $(id).value;
  const kind = kindAsked();
  const of = (kind, clock = value("clock")) =>
    ofDevice().answers[`${kind}/${clock}/${value("language")}/${Number($("deterministic").checked)}`] ?? [];
  const atSizes = (found) => found.filter((entry) => asked.every((size, i) => size === entry[i]));
  const clocks = Object.keys(D.clocks).filter((clock) => clock !== value("clock") && atSizes(of(kind, clock)).length);
  const beside = ofDevice().recordedWith[asked.join("x")]?.[kind];
  const others = beside === undefined || !text(beside) ? [] : [flagged(text(beside))];
  let [apart, taken] = nearestOf(of(kind), asked, kind);
  let instead = [], answeredKind = kind;
  if (apart >= D.far) {  // as rows/answers.py's answered
    for (const other of ofDevice().instead[kind] ?? []) {
      const [distance, there] = nearestOf(of(other), asked, other);
      if (distance < Math.min(apart, D.far)) [apart, taken, answeredKind] = [distance, there, other];
    }
  }
  if (answeredKind !== kind) {
    const [before, after] = D.insteadOf[Number(apart === 0)].replace("{asked}", D.flags[kind]).split("{flags}");
    instead = [element("p", { class: "instead" }, before, flagsButton(D.flags[answeredKind]), after)];
  }
  const byClock = clocks.map((clock) => `--clock ${clock}`).join(", ");
  const recorded = [...(byClock ? [element("p", {}, `Recorded at this shape with ${byClock}.`)] : []), ...others];
  if (!taken) {
    return [element("p", { class: "winner" }, "Nothing recorded."),
      flagged(`No row is of this kind and clock; there are: ${ofDevice().kinds[value("op")]}.`), ...recorded];
  }
  const yours = bytesOfCopies(asked, value("dtype"), answeredKind);
  const there = bytesOfCopies(taken, taken[3], answeredKind);
  const copies = there === yours ? [] : [element("p", {}, D.otherCopies.replace("{yours}", yours).replace("{there}", there))];
  const [unpacked, unpackedThere] = [asked[0], taken[0]].map((m) => Math.ceil(m / D.rowsUnpacked));
  if (isFourBits() && unpacked !== unpackedThere) {
    const said = D.unpacked.replace("{rows}", D.rowsUnpacked).replace("{yours}", unpacked);
    copies.push(element("p", {}, said.replace("{there}", unpackedThere)));
  }
  const [head, cells, elsewhere, why, calls, source] = taken[4];
  // Of another problem that is answered instead: with the epilogue that is asked for.
  const call = calls[isFourBits() ? 0 : $("epilogue").selectedIndex];
  const far = apart >= D.far;
  const lines = [...(far ? [D.notNear] : []), ...head.map(text)].map((line, i) =>
    element("p", { class: i ? null : far ? "not-near" : "winner" }, ...breakable(line)));
  const hint = apart === 0 && !instead.length ? [] : recorded;
  return [
    ...instead,
    ...(far ? hint : []),
    ...lines,
    element("p", { id: "where" }, whereLine(asked, taken.slice(0, 3), apart, taken[3], value("clock"))),
    ...(apart === 0 ? [] : [element("p", { id: "apart" }, howFar(asked, taken.slice(0, 3)))]),
    ...copies,
    ...(far ? [] : hint),
    boxTable(cells, element("thead", {}, element("tr", {}, ...D.cells.map((name) => element("th", { scope: "col" }, name))))),
    ...elsewhere.map(([title, lines]) => boxTable(lines, element("caption", {}, text(title)))),
    ...(far ? [] : [
      element("p", {}, "Why: ", ...why.flatMap((line) => {
        const note = text(line).match(/^More: notes\/(.*)$/);
        return note ? ["More: ", element("a", { href: note[1] }, `notes/${note[1]}`)] : [text(line), " "];
      })),
      element("pre", { tabindex: 0, role: "group", "aria-label": "The call" }, element("code", {}, ...breakable(text(call)))),
    ]),
    element("p", { class: "small" }, ...breakable(text(source))),
    element("button", { type: "button", onclick: () => showRows(text(source)) }, "Choose these rows in the heat map"),
  ];
}

// Of a line that names them: 'Rows: h200/router-nk.jsonl, 32x256x7168-bf16-nk, ...'.
function showRows(source) {
  const [, file, name] = source.match(/^Rows: (.*)\.jsonl, ([^,]*), /);
  $("file").value = file;
  showFile(D.files.find((one) => one.name === file).problems.findIndex(([problem]) => problem === name), null);
  $("heat").scrollIntoView();
}

// --- Rows -------------------------------------------------------------------------------------------------------

for (const file of D.files) {
  file.rows = file.rows.map(([problem, contender, language, protocol, config, from, status, command, contends, hollow,
    timing]) => ({
    file, problem, contender: text(contender), language: text(language), protocol: text(protocol),
    config: text(config), from: text(from), status: text(status),
    command: text(command).replaceAll("{}", text(contender)), contends: Boolean(contends), hollow: Boolean(hollow),
    timing: Object.fromEntries(Object.entries(timing).map(([clock, [us, q1, q3, speedup, low, high, verdict, floor, noise]]) =>
      [clock, { us, q1, q3, speedup, low, high, verdict: text(verdict), floor, noise: file.noise[noise] }])),
  }));
}
const FIRST = D.files.find((file) => file.name.endsWith(`/${D.first}`));
const state = { file: FIRST, clock: "cold", problem: null, protocol: null };
const nameOf = (problem) => state.file.problems[problem][0];
const labelOf = (problem) => state.file.problems[problem][4];
const fastest = (rows) => rows.reduce((best, row) =>
  !best || row.timing[state.clock].us < best.timing[state.clock].us ? row : best, null);
const isBaseline = (row) => row.timing[state.clock]?.verdict === "baseline";
// As bench/rows/queries.py has it, of two timings: shorter by more than both intervals, and by more than the noise.
const leads = (one, other) => other.high < one.low && other.us > one.us * (1 + one.noise);
// What the kernels of a protocol are called in this file.
const columnOf = (protocol) => D.columns[state.file.op]?.[protocol] ?? protocol;
const timed = () => state.file.rows.filter((row) => row.timing[state.clock] && row.contends);

// --- Heat map ---------------------------------------------------------------------------------------------------

const LANGUAGES = ["triton", "tilus"];
const shadeOf = (ratio) =>
  `background: rgba(var(--${ratio >= 1 ? "faster" : "slower"}), ${Math.min(0.65, Math.abs(Math.log2(ratio)) * 0.8)})`;

// The rows of a view's cell, the ratio's or the language's first; null where one is missing.
function cellOf(rows, view, problem, protocol) {
  const of = (language) => fastest(rows.filter((row) =>
    row.problem === problem && row.protocol === protocol && row.language === language));
  const shown = view === "ratio" ? [of("tilus"), of("triton")] : [of(view)];
  return shown.every(Boolean) ? shown : null;
}

// What the kernels of a column do, by the step of the ladder that they are.
function changeOf(column) {
  const step = Object.keys(D.changes).find((kernel) => kernel.startsWith(column.replace("w4a16.", "")));
  return step ? `: ${D.changes[step]}` : "";
}

function heatMap() {
  const baselines = timed().filter(isBaseline);
  const rows = timed().filter((row) => LANGUAGES.includes(row.language) && !isBaseline(row));
  const protocols = D.protocols.filter((name) => rows.some((row) => row.protocol === name));
  const problems = state.file.problems.map((_, problem) => problem);
  const radios = [...document.querySelectorAll("[name=view]")];
  for (const radio of radios) {
    radio.disabled = !problems.some((problem) =>
      protocols.some((protocol) => cellOf(rows, radio.value, problem, protocol)));
  }
  const chosen = radios.find((radio) => radio.checked);
  const view = (chosen.disabled && radios.find((radio) => !radio.disabled) || chosen);
  view.checked = true;
  $("heat-title").textContent = state.file.title;
  if (view.disabled) {
    return $("map").replaceChildren(element("p", {},
      "No kernel of either language was timed here against the baseline; the rows stand at the end of the page."));
  }
  const pressed = (problem, protocol) =>
    String(state.problem === problem && state.protocol === protocol && (problem !== null || protocol !== null));
  const heads = protocols.map((protocol) => element("button", { type: "button", "data-key": protocol,
    title: `protocol ${protocol}${changeOf(columnOf(protocol))}`,
    "aria-pressed": pressed(null, protocol), onclick: () => ask(null, protocol) },
    ...columnOf(protocol).split(/(?<=\.)/).flatMap((part) => [element("wbr"), part])));
  const lines = problems.map((problem) => {
    const name = nameOf(problem);
    const cells = protocols.map((protocol) => {
      const shown = cellOf(rows, view.value, problem, protocol);
      if (!shown) return null;
      const [times, other] = shown.map((row) => row.timing[state.clock]);
      const against = other ?? baselines.find((row) => row.problem === problem).timing[state.clock];
      const tie = !leads(times, against) && !leads(against, times);
      const ratio = other ? other.us / times.us : times.speedup;
      const hollow = shown.some((row) => row.hollow) ? "°" : "";
      const told = other ? `tilus ${fixed(ratio, 2)} times as fast as Triton`
        : `${shown[0].contender}: ${fixed(times.us, 1)} us, ${fixed(ratio, 2)} times the baseline`;
      const title = `${name}, ${columnOf(protocol)}: ${told}${tie ? ", no lead" : ""}`;
      return element("button", { type: "button", "aria-pressed": pressed(problem, protocol),
        "data-key": `${name}, ${protocol}`, onclick: () => ask(problem, protocol), title,
        style: tie ? null : shadeOf(ratio), class: tie ? "tie" : null,
        "aria-label": title + (hollow ? ", config not searched" : ""),
      }, fixed(ratio, 2) + hollow);
    });
    return [element("button", { type: "button", "data-key": name, title: name, "aria-label": name,
      "aria-pressed": pressed(problem, null), onclick: () => ask(problem, null) }, labelOf(problem)), ...cells];
  });
  rove([[null, ...heads], ...lines]);
  $("map").replaceChildren(element("table", {},
    element("thead", {}, element("tr", {}, element("th", { scope: "col" }, state.file.head),
      ...heads.map((button) => element("th", { scope: "col" }, button)))),
    element("tbody", {}, ...lines.map(([first, ...cells]) => element("tr", {}, element("th", { scope: "row" }, first),
      ...cells.map((cell) => element("td", {}, ...(cell ? [cell] : []))))))));
}

function ask(problem, protocol) {
  const again = state.problem === problem && state.protocol === protocol;
  pick(again ? null : problem, again ? null : protocol);
  const focused = document.activeElement;
  const inMap = focused.id === "clear" || $("map").contains(focused);
  filtered();
  const buttons = [...document.querySelectorAll("#map button")];
  if (inMap) (buttons.find((each) => each.dataset.key === focused.dataset.key) ?? buttons[0]).focus();
}

function pick(problem, protocol) {
  const another = state.protocol !== protocol;
  Object.assign(state, { problem, protocol });
  if (another) followKernel();
}

// Shows the pair of the chosen kernel, and what its note explains.
function followKernel() {
  const own = { or_reduce: "or_reduce", w4a16: "w4a16" }[state.file.op];  // a matmul's is the protocol's
  const article = state.protocol && [...document.querySelectorAll(".pair")].find((each) =>
    each.dataset.protocols.split(" ").includes(state.protocol) && (!own || each.dataset.name === own));
  if (article) $("pair").value = article.dataset.name;
  const notes = [...$("note").options].map((option) => option.value);
  $("note").value = article && notes.includes(article.dataset.name) ? article.dataset.name : "";
  showPair();
  choose($("mechanisms"));
}

function filtered() {
  heatMap();
  const said = [state.problem === null ? "" : nameOf(state.problem), state.protocol ? columnOf(state.protocol) : ""]
    .filter(Boolean).join(", ");
  $("filter").replaceChildren(`Chosen: ${state.file.title}${said ? `, ${said}. ` : ", all problems and kernels."}`,
    ...(said ? [element("button", { type: "button", id: "clear", onclick: () => ask(state.problem, state.protocol) },
      "Show all")] : []));
  sweepChoices();
  matched();
  showLadder();
  showMatrix();
  rowsShown = 200;
  allRows();
}

function showFile(problem, protocol) {
  state.file = D.files.find((file) => file.name === $("file").value);
  pick(problem, protocol);
  const clocks = state.file.clocks;
  if (!clocks.includes(state.clock)) state.clock = clocks[0];
  for (const select of document.querySelectorAll("select.clock")) {
    options(select, clocks, clocks.map((clock) => D.clocks[clock]));
    select.value = state.clock;
  }
  const [share, ownClock] = state.file.betweenRuns[state.clock];
  const runs = ownClock ? `runs (${D.clocks[state.clock]})` : `runs in another timing (${D.clocks[state.clock]} was not run twice)`;
  $("between").textContent = `at most ${fixed(100 * share, 1)} % between ${runs}, by problem`;
  filtered();
}

function chooseClock(clock) {
  state.clock = clock;
  showFile(state.problem, state.protocol);
}

// --- Latency ----------------------------------------------------------------------------------------------------

const COLOURS = ["#bf3989", "#bf8700", "#8250df", "#cf5c14", "#0a7d8c", "#a0781e", "#6a8ee0", "#c0506a"];
const SHAPES = {
  circle: (x, y) => drawn("circle", { cx: x, cy: y, r: 5 }),
  square: (x, y) => drawn("rect", { x: x - 4.5, y: y - 4.5, width: 9, height: 9 }),
  triangle: (x, y) => drawn("path", { d: `M${x} ${y - 6}l6 10h-12z` }),
  diamond: (x, y) => drawn("path", { d: `M${x} ${y - 6}l6 6l-6 6l-6 -6z` }),
  down: (x, y) => drawn("path", { d: `M${x} ${y + 6}l6 -10h-12z` }),
  bar: (x, y) => drawn("rect", { x: x - 2.5, y: y - 6, width: 5, height: 12 }),
  star: (x, y) => drawn("path", { d: `M${x} ${y - 7}l2 5l5 2l-5 2l-2 5l-2 -5l-5 -2l5 -2z` }),
};
// Of the contenders that are not shown at first: no two of them have the same colour, marker and dashes.
const MARKERS = ["diamond", "down", "bar", "star"];
const DASHES = ["", "3 3", "9 3 2 3"];
const styleOf = (i) => ({ colour: COLOURS[i % COLOURS.length],
  shape: MARKERS[Math.floor(i / COLOURS.length) % MARKERS.length],
  dashes: DASHES[Math.floor(i / COLOURS.length / MARKERS.length) % DASHES.length] });
// A marker, filled or hollow.
function markerOf(one, x, y, hollow = false) {
  const shape = SHAPES[one.shape](x, y);
  shape.setAttribute("fill", hollow ? "var(--bg)" : one.colour);
  shape.setAttribute("stroke", one.colour);
  return shape;
}
const lineOf = (one, points) => drawn("polyline", { points, fill: "none", stroke: one.colour, "stroke-width": 2,
  ...(one.dashes ? { "stroke-dasharray": one.dashes } : {}) });
const keyOf = (one) => drawn("svg", { class: "key", viewBox: "0 0 36 16", "aria-hidden": true },
  lineOf(one, "0,8 36,8"), ...(one.shape ? [markerOf(one, 18, 8)] : []));
const toggled = new Set(["best triton", "best tilus", "floor"]);
let defaultBaseline = true;

function sweepChoices() {
  const before = state.file.sweeps[$("sweep").value];
  options($("sweep"), state.file.sweeps.map((_, i) => i), state.file.sweeps.map(([axis, problems]) => {
    const [first, last] = [problems[0], problems.at(-1)].map((problem) => state.file.problems[problem]);
    if (first === last) return `only ${labelOf(problems[0])}`;
    const rest = ["m", "n", "k"].flatMap((name, i) => axis.split(" = ").includes(name) ? [] : [`${name.toUpperCase()} ${first[i + 1]}`]);
    const at = { m: 1, n: 2, k: 3 }[axis[0]];
    return [`${axis.toUpperCase()} from ${first[at]} to ${last[at]}`, ...rest].join(", ");
  }));
  const fits = (sweep) => sweep && (state.problem === null || sweep[1].includes(state.problem));
  const place = fits(before) ? state.file.sweeps.indexOf(before) : state.file.sweeps.findIndex(fits);
  $("sweep").value = Math.max(0, place);
  const isOurs = (row) => ["triton", "tilus"].includes(row.language);
  if (!timed().some(isOurs)) timed().filter((row) => !isBaseline(row)).forEach((row) => toggled.add(row.contender));
  latency();
}

function seriesOf(problems) {
  const rows = timed().filter((row) => problems.includes(row.problem)
    && (!state.protocol || row.protocol === state.protocol || isBaseline(row)));
  const along = (chosen) => problems.map((problem) => [problem, fastest(rows.filter((row) =>
    row.problem === problem && chosen(row)))]).filter(([, row]) => row);
  const baselines = [...new Set(rows.filter(isBaseline).map((row) => row.contender))];
  const names = [...new Set(rows.map((row) => row.contender))].filter((name) => !baselines.includes(name));
  const only = state.protocol ? `, only ${columnOf(state.protocol)}` : "";
  const series = [
    ...baselines.map((name) => ({ name, colour: "var(--other)", shape: "square", on: defaultBaseline,
      points: along((row) => row.contender === name) })),
    { name: "best triton", label: `best triton${only}`, colour: "var(--triton)", shape: "circle", points: along((row) => row.language === "triton") },
    { name: "best tilus", label: `best tilus${only}`, colour: "var(--tilus)", shape: "triangle", points: along((row) => row.language === "tilus") },
    { name: "floor", colour: "var(--other)", dashes: "6 4", points: along((row) => row.timing[state.clock].floor !== null) },
    ...names.map((name, i) => ({ name, ...styleOf(i),
      points: along((row) => row.contender === name) })),
  ];
  return series.filter((one) => one.points.length)
    .map((one) => ({ ...one, label: one.label ?? one.name, on: one.on ?? toggled.has(one.name) }));
}

// Round values between two, as many as stand apart.
const DIGITS = [[1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9, 2, 2.2, 2.4, 2.6, 2.8, 3, 3.5, 4, 4.5, 5, 5.5, 6, 6.5, 7, 7.5, 8, 8.5, 9, 9.5],
  [1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9], [1, 1.5, 2, 3, 4, 5, 7], [1, 2, 5], [1]];
function ticks(low, high, pixels, least) {
  for (const digits of DIGITS) {
    const made = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
      made.push(...digits.map((digit) => Number((digit * 10 ** power).toPrecision(3))).filter((value) => value >= low && value <= high));
    }
    const apart = made.slice(1).map((value, i) => Math.log(value / made[i]) / Math.log(high / low) * pixels);
    if (apart.every((gap) => gap >= least) || digits === DIGITS.at(-1)) return made;
  }
}

function frameOf(label, xs, ys, xTicks, xName, yName) {
  // As wide as the page: text keeps its size on a phone.
  const width = Math.max(300, Math.min(1000, document.querySelector("main").clientWidth));
  const height = Math.max(280, Math.min(420, width * 0.6));
  const [left, right, top, bottom] = [44, 16, 22, 42];
  const scale = (values, from, to) => {
    const [low, high] = [Math.log(Math.min(...values)), Math.log(Math.max(...values))];
    return (value) => high === low ? (from + to) / 2 : from + (Math.log(value) - low) / (high - low) * (to - from);
  };
  const bounds = [Math.min(...ys) / 1.1, Math.max(...ys) * 1.1];
  const x = scale(xs, left + 14, width - right - 14), y = scale(bounds, height - bottom, top);
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": label });
  for (const value of ticks(...bounds, height - bottom - top, 15)) {
    svg.append(drawn("line", { class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value) }),
      drawn("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, String(value)));
  }
  // The last value has its label, and of the others those that stand apart from it and from one another.
  const apart = (one, other) => Math.abs(x(one) - x(other)) > 4 * (String(one).length + String(other).length) + 4;
  const last = xTicks.at(-1);
  let before = null;
  for (const value of xTicks) {
    if (value !== last && !(apart(value, last) && (before === null || apart(value, before)))) continue;
    before = value;
    svg.append(drawn("line", { class: "grid", x1: x(value), x2: x(value), y1: height - bottom, y2: height - bottom + 5 }),
      drawn("text", { x: x(value), y: height - bottom + 18, "text-anchor": "middle" }, String(value)));
  }
  svg.append(drawn("text", { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, xName),
    drawn("text", { x: 2, y: 12 }, yName));
  return { svg, x, y, left, right: width - right, top, bottom: height - bottom };
}

function latency() {
  const [axis, problems] = state.file.sweeps[$("sweep").value];
  const size = (problem) => state.file.problems[problem][{ m: 1, n: 2, k: 3 }[axis[0]]];
  const series = seriesOf(problems);
  const shown = series.filter((one) => one.on);
  const value = (one, row) => one.shape ? row.timing[state.clock].us : row.timing[state.clock].floor;
  const us = shown.flatMap((one) => one.points.map(([, row]) => value(one, row)));
  const choose = (one, on) => {
    if (one.shape === "square") defaultBaseline = on;
    else on ? toggled.add(one.name) : toggled.delete(one.name);
    latency();
    [...document.querySelectorAll("#lines input")].find((input) => input.value === one.name)?.focus();
  };
  $("lines").replaceChildren(element("legend", {}, "lines"), ...series.map((one) => element("label", {},
    element("input", { type: "checkbox", value: one.name, ...(one.on ? { checked: "" } : {}),
      onchange: (event) => choose(one, event.target.checked) }),
    keyOf(one), one.label)));
  $("point").replaceChildren(element("p", { class: "small" },
    `Point at the plot: all its lines at the nearest ${axis.toUpperCase()}. Tab to a marker: only that one.`));
  if (!us.length) return $("chart").replaceChildren(element("p", {}, "No line is chosen, or none was timed by this clock."));
  const sizes = problems.map(size);
  const { svg, x, y } = frameOf(`Latency in microseconds by ${axis.toUpperCase()}, ${D.clocks[state.clock]}`,
    sizes, us, sizes, axis.toUpperCase(), `us, ${D.clocks[state.clock]}`);
  if (state.problem !== null && problems.includes(state.problem)) {
    const at = x(size(state.problem));
    svg.append(drawn("line", { class: "grid", x1: at, x2: at, y1: 22, y2: y(Math.min(...us) / 1.1), "stroke-width": 6 }));
  }
  const guide = drawn("line", { class: "grid", x1: 0, x2: 0, y1: 22, y2: y(Math.min(...us) / 1.1), visibility: "hidden" });
  svg.append(guide);
  let pointed = null;
  const tellAt = (problem) => {
    if (problem === pointed) return;
    pointed = problem;
    for (const end of ["x1", "x2"]) guide.setAttribute(end, x(size(problem)));
    guide.setAttribute("visibility", "visible");
    tellAll(problem, shown);
  };
  for (const event of ["pointermove", "pointerdown"]) {
    svg.addEventListener(event, ({ clientX }) => {
      const { left, width } = svg.getBoundingClientRect();
      const at = (clientX - left) / width * svg.viewBox.baseVal.width;
      const far = (problem) => Math.abs(x(size(problem)) - at);
      tellAt(problems.reduce((best, problem) => far(problem) < far(best) ? problem : best));
    });
  }
  for (const one of shown) {
    const places = one.points.map(([problem, row]) => [x(size(problem)), y(value(one, row))]);
    const [[only, at]] = places;
    const line = places.length > 1 || one.shape ? places : [[only - 18, at], [only + 18, at]];  // one point is no line
    svg.append(lineOf(one, line.map((place) => place.join(",")).join(" ")));
    if (!one.shape) continue;
    const marks = one.points.map(([problem, row], i) => markOf(
      `${one.label}, ${nameOf(problem)}: ${fixed(row.timing[state.clock].us, 2)} us, ${row.contender}${row.hollow ? `, ${D.unsearched}` : ""}`,
      (event) => {
        if (event?.type === "pointerenter") return tellAt(problem);  // a marker may cover others
        pointed = null;
        tell(row);
      }, drawn("circle", { class: "ring", cx: places[i][0], cy: places[i][1], r: 11 }),
      markerOf(one, ...places[i], row.hollow)));
    rove([marks]);
    svg.append(...marks);
  }
  const legend = element("p", { class: "legend" }, ...shown.map((one) => element("span", {}, keyOf(one), one.label)));
  $("chart").replaceChildren(legend, svg);
}

function tell(row) {
  $("point").replaceChildren(...told(row, row.contender));
}

// What all these lines have at a problem, the fastest first; lines that share a row are told together.
function tellAll(problem, lines) {
  const at = lines.flatMap((one) => one.points.filter(([place]) => place === problem).map(([, row]) => [one, row]));
  const labels = new Map();
  for (const [one, row] of at) if (one.shape) labels.set(row, [...(labels.get(row) ?? []), one.label]);
  const rows = [...labels.keys()].sort((a, b) => a.timing[state.clock].us - b.timing[state.clock].us);
  const floor = at.find(([one]) => !one.shape);
  $("point").replaceChildren(
    ...rows.flatMap((row) => told(row, [...new Set([...labels.get(row), row.contender])].join(", "))),
    ...(floor ? [element("p", {}, element("b", {}, "floor"), ` ${nameOf(problem)}: ${fixed(floor[1].timing[state.clock].floor, 2)} us`)] : []));
}

function told(row, label) {
  const t = row.timing[state.clock];
  const times = isBaseline(row) ? "the baseline" : `${fixed(t.speedup, 2)}x the baseline (${fixed(t.low, 2)}-${fixed(t.high, 2)})`;
  const config = row.config ? `${row.config} (${row.from}${row.hollow ? `: ${D.unsearched}` : ""})` : "no config";
  return [
    element("p", {}, element("b", {}, label), ` ${nameOf(row.problem)}: ${fixed(t.us, 2)} us (${fixed(t.q1, 2)}-${fixed(t.q3, 2)}), ${times}`),
    element("p", {}, config), element("p", {}, element("code", {}, row.command))];
}

// --- tilus over Triton, at one config ---------------------------------------------------------------------------

// As the best of each language in the plot of latency.
const styleOfOwner = (language) => ({ colour: `var(--${language})`, shape: language === "triton" ? "circle" : "triangle" });
const ownerOf = { triton: "Triton's", tilus: "tilus'" };

function matched() {
  const those = D.files.filter((file) => file.matched[state.clock].length);
  $("unmatched").hidden = D.files.some((file) => Object.values(file.matched).some((lines) => lines.length));
  const files = those.includes(state.file) ? [state.file] : those;
  const found = files.flatMap((file) => file.matched[state.clock].map((line) => [file, ...line]));
  const chosen = ([file, problem, , protocol]) => (!state.protocol || text(protocol) === state.protocol)
    && (state.problem === null || file.problems[problem][0] === nameOf(state.problem));
  const none = "Point at a mark, or Tab to it: its kernel, problem and ratios.";
  const said = found.length && !found.some(chosen) ? "None of these matches the choice in the heat map." : none;
  $("matched-point").replaceChildren(element("p", { class: "small" }, said));
  $("matched-point").hidden = !found.length;
  $("matched-of").textContent = found.length ? `A mark is a kernel on a problem, ${D.clocks[state.clock]}. Upward: tilus' speed over Triton's at one config, found for one of them. To the right: the same with a config for each. Kernels without a config of their own there are left out. Rows of ${files.map((file) => file.title).join("; ")}.`
    : $("unmatched").hidden ? "Nothing was recorded at one config by this clock." : "";
  if (!found.length) return $("scatter").replaceChildren();
  const at = found.map((line) => line[5]), own = found.map((line) => line[6]);
  const all = [...at, ...own, 0.95, 1.05];
  const [low, high] = [Math.min(...all), Math.max(...all)];
  const { svg, x, y, left, right, top, bottom } = frameOf("tilus over Triton at one config, by that at a config for each", all,
    all, ticks(low, high, 400, 30), "tilus over Triton, a config for each", "tilus over Triton, one config");
  svg.append(drawn("line", { class: "grid", x1: x(low), y1: y(low), x2: x(high), y2: y(high) }),
    drawn("line", { class: "grid", x1: x(1), x2: x(1), y1: top, y2: bottom }),
    drawn("line", { class: "grid", x1: left, x2: right, y1: y(1), y2: y(1) }),
    drawn("text", { x: left + 6, y: top + 14 }, "above the diagonal: tilus better at one config"),
    drawn("text", { x: right - 4, y: bottom - 8, "text-anchor": "end" }, "below: better with a config for each"));
  const marks = found.map((line) => {
    const [file, problem, kernel, , config, one, best] = line;
    const told = `${text(kernel)}, ${ownerOf[text(config)]} config, ${file.problems[problem][0]}: ${fixed(one, 2)} at one config, ${fixed(best, 2)} with a config for each`;
    const mark = markOf(told, () => $("matched-point").replaceChildren(element("p", {}, told)), drawn("title", {}, told),
      drawn("circle", { class: "ring", cx: x(best), cy: y(one), r: 9 }),
      markerOf(styleOfOwner(text(config)), x(best), y(one)));
    mark.classList.toggle("dim", !chosen(line));
    return mark;
  });
  const order = found.map((_, i) => i).sort((a, b) => own[a] - own[b]);
  rove([order.map((i) => marks[i])]);
  svg.append(...order.filter((i) => !chosen(found[i])).map((i) => marks[i]), ...order.filter((i) => chosen(found[i])).map((i) => marks[i]));
  const legend = element("p", { class: "legend" }, ...LANGUAGES.map((language) => {
    const key = drawn("svg", { class: "key", viewBox: "0 0 36 16", "aria-hidden": true },
      markerOf(styleOfOwner(language), 18, 8));
    return element("span", {}, key, `${ownerOf[language]} config in both`);
  }));
  $("scatter").replaceChildren(legend, svg);
}

// --- Pairs and matrix -------------------------------------------------------------------------------------------

let kindOfTab = "code";
function showPair() {
  const shown = [...document.querySelectorAll(".pair")].find((article) => article.dataset.name === $("pair").value);
  const kinds = [...shown.querySelectorAll("[role=tab]")];
  tab(kinds.find((each) => each.id.endsWith(`-${kindOfTab}`)) ?? kinds[0]);
  for (const article of document.querySelectorAll(".pair")) {
    article.classList.toggle("hidden", article.dataset.name !== $("pair").value);
  }
}

function step(button) {
  const article = button.closest(".pair");
  const on = button.getAttribute("aria-pressed") !== "true";
  for (const other of article.querySelectorAll(".steps button")) {
    other.setAttribute("aria-pressed", String(on && other === button));
  }
  for (const column of article.querySelectorAll(".column")) {
    const lines = [...column.querySelectorAll("span[data-step]")];
    for (const line of lines) line.classList.toggle("shown", on && line.dataset.step === button.dataset.step);
    const first = lines.find((line) => line.classList.contains("shown"));
    if (first) column.scrollTop = first.offsetTop - 40;
  }
}

function tab(chosen) {
  for (const each of chosen.parentElement.children) {
    each.setAttribute("aria-selected", String(each === chosen));
    each.tabIndex = each === chosen ? 0 : -1;
    const panel = $(each.getAttribute("aria-controls"));
    panel.classList.remove("later");
    panel.classList.toggle("hidden", each !== chosen);
  }
}

function showLadder() {
  if (state.problem !== null && state.file.name.endsWith(`/${D.first}`)) $("rung").value = state.file.problems[state.problem][1];
  showRung();
}

function showRung() {
  for (const one of document.querySelectorAll(".ladder")) one.classList.toggle("hidden", one.dataset.m !== $("rung").value);
}

function showMatrix() {
  const shown = (one) => one.dataset.file === state.file.name && one.dataset.clock === state.clock;
  const all = [...document.querySelectorAll(".matrix")];
  $("no-matrix").hidden = all.some(shown);
  for (const one of all) {
    one.classList.toggle("hidden", !shown(one));
    for (const table of one.querySelectorAll("table")) {
      const place = [...table.tHead.rows[0].cells].findIndex((cell) => cell.textContent === "protocol");
      for (const line of table.tBodies[0].rows) {
        line.hidden = Boolean(state.protocol) && place >= 0 && line.cells[place].textContent !== state.protocol;
      }
    }
  }
}

// --- Claims and mechanisms --------------------------------------------------------------------------------------

function choose(section) {
  const wanted = [...section.querySelectorAll("select")].map((select) => [Number(select.dataset.column), select.value]);
  const lines = [...section.querySelector("tbody").rows];
  for (const line of lines) line.hidden = !wanted.every(([column, value]) => line.cells[column].textContent.includes(value));
  section.querySelector(".shown").textContent = `${lines.filter((line) => !line.hidden).length} of ${lines.length} shown.`;
}

// --- All rows ---------------------------------------------------------------------------------------------------

const COLUMNS = [
  ["problem", (line) => line.name], ["contender", (line) => line.row.contender], ["clock", (line) => line.clock],
  ["us", (line) => line.t?.us], ["x baseline", (line) => line.t?.speedup],
  ["95 %", (line) => line.t ? `${fixed(line.t.low, 2)}-${fixed(line.t.high, 2)}` : ""],
  ["config", (line) => line.row.config], ["from or why not", (line) => line.row.status === "passed" ? line.row.from : line.row.status],
];
const LEFT = [["file", (line) => line.row.file.name], ["q1_us", (line) => line.t?.q1], ["q3_us", (line) => line.t?.q3],
  ["low", (line) => line.t?.low], ["high", (line) => line.t?.high], ["verdict", (line) => line.t?.verdict],
  ["language", (line) => line.row.language], ["protocol", (line) => line.row.protocol],
  ["command", (line) => line.row.command]];
let order = { column: null, down: false }, rowsShown = 200;

function chosenRows() {
  const every = $("every").checked, search = $("search").value.toLowerCase();
  const rows = every ? D.files.flatMap((file) => file.rows) : state.file.rows.filter((row) =>
    (state.problem === null || row.problem === state.problem)
    && (!state.protocol || row.protocol === state.protocol || row.protocol === "library"));
  const lines = rows.flatMap((row) => {
    const clocks = Object.keys(row.timing);
    const name = row.file.problems[row.problem][0];
    return (clocks.length ? clocks : [""]).map((clock) => ({ row, clock, name, t: row.timing[clock] }));
  }).filter((line) => !search || COLUMNS.some(([, of]) => String(of(line) ?? "").toLowerCase().includes(search)));
  if (order.column === null) {
    lines.sort((a, b) => (a.t === undefined) - (b.t === undefined));  // what failed last
  } else {
    const of = COLUMNS[order.column][1];
    const sign = order.down ? -1 : 1;
    lines.sort((a, b) => {
      const [one, other] = [of(a), of(b)];
      if (one === undefined || other === undefined) return (one === undefined) - (other === undefined);
      return sign * (typeof one === "number" ? one - other : one.localeCompare(other, "en", { numeric: true }));
    });
  }
  return lines;
}

function allRows() {
  const lines = chosenRows();
  $("count").textContent = `${lines.length} rows and clocks${$("every").checked ? " of all data sets" : ` of ${state.file.title}`}; ${Math.min(rowsShown, lines.length)} shown.`;
  const number = (i) => [3, 4].includes(i) ? "number" : null;
  $("all").tHead.rows[0].replaceChildren(...COLUMNS.map(([name], i) => element("th", { scope: "col", class: number(i),
    "aria-sort": order.column === i ? (order.down ? "descending" : "ascending") : "none" },
    element("button", { type: "button", onclick: () => {
      order = { column: i, down: order.column === i && !order.down };
      allRows();
      $("all").tHead.rows[0].cells[i].firstChild.focus();
    } }, name + (order.column === i ? (order.down ? " ↓" : " ↑") : "")))),
    element("th", { scope: "col" }, "command"));
  const shown = (value, i) => typeof value === "number" ? fixed(value, i === 3 ? 2 : 3) : value ?? "";
  $("all").tBodies[0].replaceChildren(...lines.slice(0, rowsShown).map((line) => element("tr", {},
    ...COLUMNS.map(([, of], i) => element("td", { class: number(i) }, shown(of(line), i))),
    element("td", {}, element("details", {}, element("summary", {}, "show"), element("code", {}, line.row.command))))));
  if (!lines.length) $("count").textContent = `No row contains '${$("search").value}'.`;
  $("further").hidden = lines.length <= rowsShown;
}

function download() {
  const quoted = (value) => /[",\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value;
  const columns = [...COLUMNS.filter(([name]) => name !== "95 %"), ...LEFT];
  const heads = { "x baseline": "speedup", "from or why not": "config_from" };
  const lines = [columns.map(([name]) => heads[name] ?? name), ...chosenRows().map((line) => columns.map(([, of]) => String(of(line) ?? "")))];
  const csv = lines.map((line) => line.map(quoted).join(",")).join("\n") + "\n";
  const link = element("a", { href: URL.createObjectURL(new Blob([csv], { type: "text/csv" })), download: `${$("every").checked ? "rows" : state.file.name.replace("/", "-")}.csv` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// --- The address ------------------------------------------------------------------------------------------------

// Behind the # stand the section, if any, and what was chosen beside what the page opens with, so that a link shows it
// again: "#rows&m=16&file=h200/crossover".
const KEPT = ["m", "n", "k", "op", "dtype", "layout", "epilogue", "clock", "language", "device", "file", "heat-clock",
  "sweep", "pair", "rung", "verdict", "sure", "note", "search"];
const CHECKS = ["deterministic", "every"];
const FOLLOWERS = ["sweep", "pair", "rung", "note"];  // a choice in the heat map sets them
const anchor = () => location.hash.slice(1).split("&").find((part) => part && !part.includes("=")) ?? "";
const view = () => document.querySelector("[name=view]:checked").value;

function usual(id) {
  if (id === "dtype") return usualDtype();
  if (id === "heat-clock") return state.file.clocks[0];
  if (id === "file") return FIRST.name;
  const control = $(id);
  return control.options ? [...control.options].find((one) => one.defaultSelected)?.value ?? control.options[0]?.value ?? ""
    : control.defaultValue;
}

function address() {
  const said = new URLSearchParams();
  const chosen = state.problem !== null || state.protocol !== null;
  for (const id of KEPT) if ($(id).value !== usual(id) || (chosen && FOLLOWERS.includes(id))) said.set(id, $(id).value);
  for (const id of CHECKS) if ($(id).checked) said.set(id, 1);
  if (view() !== "ratio") said.set("view", view());
  if (state.problem !== null) said.set("problem", nameOf(state.problem));
  if (state.protocol) said.set("protocol", state.protocol);
  const parts = [anchor(), String(said).replaceAll("%2F", "/")].filter(Boolean);
  return parts.length ? `#${parts.join("&")}` : "";
}

// An address that has just changed is shown by its hashchange, which comes later than a timer may: till then it stays.
let taken = location.hash;
function keep() {
  if (location.hash !== taken || address() === taken) return;
  history.replaceState(null, "", address() || location.pathname + location.search);
  taken = location.hash;
}

function put(id, value) {
  const control = $(id);
  control.value = value;
  if (control.options && control.selectedIndex < 0) control.value = usual(id);  // what a link has that the page has not
}

// Shows what the address says.
function begin() {
  const said = new URLSearchParams(location.hash.slice(1));
  for (const id of KEPT) put(id, said.get(id) ?? usual(id));
  for (const id of CHECKS) $(id).checked = said.has(id);
  const views = [...document.querySelectorAll("[name=view]")];
  (views.find((radio) => radio.value === said.get("view")) ?? views.find((radio) => radio.value === "ratio")).checked = true;
  answered();
  Object.assign(state, { clock: said.get("heat-clock") ?? "cold", protocol: null });
  const { problems } = D.files.find((file) => file.name === $("file").value);
  const problem = problems.findIndex(([name]) => name === said.get("problem"));
  showFile(problem < 0 ? null : problem, D.protocols.find((name) => name === said.get("protocol")) ?? null);
  for (const id of FOLLOWERS) if (said.has(id)) put(id, said.get(id));
  latency();
  showPair();
  showRung();
  for (const section of document.querySelectorAll(".filtered")) choose(section);
}

// Not with every key: browsers refuse more than some hundred of these in half a minute. A click may lead away.
let toBeKept;
for (const event of ["input", "change"]) {
  document.addEventListener(event, () => { clearTimeout(toBeKept); toBeKept = setTimeout(keep, 200); });
}
document.addEventListener("click", keep);
window.addEventListener("hashchange", () => {  // a link to a section, which keeps what was chosen, or one to a choice
  taken = location.hash;
  if (location.hash.includes("=")) {
    begin();
    $(anchor())?.scrollIntoView();
  }
  keep();
});
// Going back, a browser puts the controls where they were after this script has run.
window.addEventListener("pageshow", () => { if (address() !== location.hash) begin(); });

// --- Begin ------------------------------------------------------------------------------------------------------

$("ask").addEventListener("submit", (event) => event.preventDefault());
$("op").addEventListener("input", () => { $("dtype").value = usualDtype(); });
// Not on change too: that of a field comes with the mouse button's way down on something in the answer, and an answer
// made anew then is no longer there when the button comes up.
$("ask").addEventListener("input", answered);
$("file").addEventListener("change", () => showFile(null, null));
for (const select of document.querySelectorAll("select.clock")) select.addEventListener("change", () => chooseClock(select.value));
for (const radio of document.querySelectorAll("[name=view]")) radio.addEventListener("change", heatMap);
$("sweep").addEventListener("change", latency);
$("pair").addEventListener("change", showPair);
$("rung").addEventListener("change", showRung);
for (const section of document.querySelectorAll(".filtered")) {
  section.addEventListener("change", () => choose(section));
}
for (const button of document.querySelectorAll(".steps button")) button.addEventListener("click", () => step(button));
for (const each of document.querySelectorAll("[role=tab]")) {
  const turn = (chosen) => {
    kindOfTab = chosen.id.split("-").at(-1);  // that of the next pair too
    tab(chosen);
    chosen.focus();
  };
  each.addEventListener("click", () => turn(each));
  each.addEventListener("keydown", (event) => {
    const { firstElementChild, lastElementChild } = each.parentElement;
    const other = { ArrowLeft: each.previousElementSibling ?? lastElementChild, Home: firstElementChild,
      ArrowRight: each.nextElementSibling ?? firstElementChild, End: lastElementChild }[event.key];
    if (!other) return;
    event.preventDefault();
    turn(other);
  });
}
$("search").addEventListener("input", () => { rowsShown = 200; allRows(); });
$("every").addEventListener("change", () => { rowsShown = 200; allRows(); });
$("download").addEventListener("click", download);
$("further").addEventListener("click", () => {
  rowsShown += 200;
  allRows();
  if ($("further").hidden) $("all").parentElement.focus();  // a hidden button leaves the focus to the page's begin
});
window.addEventListener("resize", () => { latency(); matched(); });

$("scale").append(...[0.5, 0.75, 1, 1.33, 2].flatMap((ratio) =>
  [element("span", { class: "swatch", style: shadeOf(ratio) }), ` ${ratio}x `]), "and beyond: orange slower, blue faster.");
// Those of the GPU that answers first, by GPU and operation; what tells one from another stands first.
const groupOf = (file) => `${file.device}, ${file.op}`;
const rank = (group) => 2 * group.startsWith(FIRST.device) + group.endsWith(FIRST.op);
const groups = [...new Set(D.files.map(groupOf))].sort((a, b) => rank(b) - rank(a));
$("file").replaceChildren(...groups.map((group) => element("optgroup", { label: group },
  ...D.files.filter((file) => groupOf(file) === group).map((file) =>
    element("option", { value: file.name }, `${file.name.split("/")[1]}: ${file.title.split(`, ${file.device}`)[0]}`)))));
begin();
if (performance.getEntriesByType("navigation")[0]?.type === "navigate") $(anchor())?.scrollIntoView();
