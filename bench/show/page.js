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

// --- The answer -------------------------------------------------------------------------------------------------

// As Python's format(x, ".2g"): two digits, the even one of two that are equally near.
function twoDigits(x) {
  let exponent = Math.floor(Math.log10(x));
  const scaled = x / 10 ** (exponent - 1);
  let digits = Math.floor(scaled);
  const rest = scaled - digits;
  if (rest > 0.5 || (rest === 0.5 && digits % 2)) digits += 1;
  if (digits === 100) { digits = 10; exponent += 1; }
  if (exponent >= -4 && exponent < 2) return String(Number((digits * 10 ** (exponent - 1)).toPrecision(2)));
  const sign = exponent < 0 ? "-" : "+";
  return `${digits / 10}e${sign}${String(Math.abs(exponent)).padStart(2, "0")}`;
}

function whereLine(asked, sizes, apart, dtype, clock) {
  const other = dtype === $("dtype").value ? "" : ` in ${dtype}`;
  const where = `${D.clocks[clock]}.`;
  if (apart === 0) return other ? `Recorded at these sizes${other}, ${where}` : `Recorded at this very problem, ${where}`;
  const ratios = ["M", "N", "K"].flatMap((name, i) =>
    asked[i] === sizes[i] ? [] : [`${name} ${twoDigits(sizes[i] / asked[i])} times yours`]);
  return `Recorded at ${sizes.join("x")}${other} (${ratios.join(", ")}), ${where}`;
}

function answered() {
  const value = (id) => $(id).value;
  const fourBits = value("op") === "w4a16";
  $("layout").disabled = $("epilogue").disabled = fourBits;
  const asked = ["m", "n", "k"].map((id) => Number(value(id)));
  const out = $("answered");
  if (!asked.every((size) => Number.isInteger(size) && size > 0)) {
    return out.replaceChildren(element("p", {}, "M, N and K are positive integers."));
  }
  const kind = D.asked[fourBits ? `w4a16 ${value("dtype")}`
    : `matmul ${value("dtype")} ${value("layout")} ${value("epilogue")}`];
  const found = D.answers[`${kind}/${value("clock")}/${value("language")}/${Number($("deterministic").checked)}`];
  if (!found) {
    const none = `No row is of this kind, timed ${value("clock")}: ${D.kinds[value("op")]}`;
    return out.replaceChildren(element("p", { class: "winner" }, "Nothing recorded."), element("p", {}, none));
  }
  let apart = Infinity, taken = null;
  for (const entry of found) {
    const distance = [0, 1, 2].reduce((sum, i) => sum + Math.abs(Math.log2(entry[i] / asked[i])), 0);
    const better = distance === apart && entry[3] === value("dtype") && taken[3] !== value("dtype");
    if (distance < apart || better) [apart, taken] = [distance, entry];
  }
  const [head, cells, why, call, source] = taken[4];
  const far = apart >= D.far;
  out.replaceChildren(
    ...[...(far ? [D.notNear] : []), ...head.map(text)].map((line, i) =>
      element("p", { class: i ? "more-said" : "winner" }, line)),
    element("p", { id: "where" }, whereLine(asked, taken.slice(0, 3), apart, taken[3], value("clock"))),
    element("table", {},
      element("thead", {}, element("tr", {}, ...["", "us", "x cuBLAS (95 %)", "config"].map((name) =>
        element("th", { scope: "col" }, name)))),
      element("tbody", {}, ...cells.map((line) => element("tr", {}, ...line.map((cell, i) =>
        element("td", { class: i === 1 ? "number" : null }, text(cell))))))),
    ...(far ? [] : [
      element("p", {}, "Why: ", ...why.flatMap((line) => {
        const note = text(line).match(/^More: notes\/(.*)$/);
        return note ? ["More: ", element("a", { href: note[1] }, `notes/${note[1]}`)] : [text(line), " "];
      })),
      element("pre", { tabindex: 0, role: "group", "aria-label": "The call" }, element("code", {}, text(call))),
    ]),
    element("p", { class: "small" }, text(source)),
  );
}

// --- Rows -------------------------------------------------------------------------------------------------------

for (const file of D.files) {
  file.rows = file.rows.map(([problem, contender, language, protocol, config, from, status, command, contends, hollow,
    timing]) => ({
    file, problem, contender: text(contender), language: text(language), protocol: text(protocol),
    config: text(config), from: text(from), status: text(status),
    command: text(command).replaceAll("{}", text(contender)), contends: Boolean(contends), hollow: Boolean(hollow),
    timing: Object.fromEntries(Object.entries(timing).map(([clock, [us, q1, q3, speedup, low, high, verdict, floor]]) =>
      [clock, { us, q1, q3, speedup, low, high, verdict: text(verdict), floor }])),
  }));
}
const state = { file: D.files.find((file) => file.name.endsWith(`/${D.first}`)) || D.files[0], clock: "cold",
  problem: null, protocol: null };
const nameOf = (problem) => state.file.problems[problem][0];
const fastest = (rows) => rows.reduce((best, row) =>
  !best || row.timing[state.clock].us < best.timing[state.clock].us ? row : best, null);
const isBaseline = (row) => row.timing[state.clock]?.verdict === "baseline";
const timed = () => state.file.rows.filter((row) => row.timing[state.clock] && row.contends);

// --- Heat map ---------------------------------------------------------------------------------------------------

function heatMap() {
  const view = document.querySelector("[name=view]:checked").value;
  const rows = timed().filter((row) => ["triton", "tilus"].includes(row.language) && !isBaseline(row));
  const protocols = D.protocols.filter((name) => rows.some((row) => row.protocol === name));
  const pressed = (problem, protocol) =>
    String(state.problem === problem && state.protocol === protocol && (problem !== null || protocol !== null));
  const head = element("tr", {}, element("th"), ...protocols.map((protocol) => element("th", { scope: "col" },
    element("button", { type: "button", "aria-pressed": pressed(null, protocol), onclick: () => ask(null, protocol) },
      protocol))));
  const lines = state.file.problems.map(([name], problem) => {
    const cells = protocols.map((protocol) => {
      const of = (language) => fastest(rows.filter((row) =>
        row.problem === problem && row.protocol === protocol && row.language === language));
      const shown = view === "ratio" ? [of("tilus"), of("triton")] : [of(view)];
      if (!shown.every(Boolean)) return element("td");
      const [times, other] = shown.map((row) => row.timing[state.clock]);
      const ratio = other ? other.us / times.us : times.speedup;
      const hollow = shown.some((row) => row.hollow) ? "°" : "";
      const alpha = Math.min(0.65, Math.abs(Math.log2(ratio)) * 0.8).toFixed(2);
      const told = view === "ratio" ? `tilus ${ratio.toFixed(2)} times as fast as Triton`
        : `${shown[0].contender}: ${times.us.toFixed(1)} us, ${ratio.toFixed(2)} times the baseline`;
      return element("td", {}, element("button", {
        type: "button", "aria-pressed": pressed(problem, protocol), onclick: () => ask(problem, protocol),
        style: `background: rgba(var(--${ratio >= 1 ? "faster" : "slower"}), ${alpha})`,
        title: `${name}, ${protocol}: ${told}`, "aria-label": `${name}, ${protocol}: ${told}${hollow ? ", config not searched" : ""}`,
      }, ratio.toFixed(2) + hollow));
    });
    return element("tr", {}, element("th", { scope: "row" }, element("button", { type: "button", title: name,
      "aria-pressed": pressed(problem, null), onclick: () => ask(problem, null) }, name)), ...cells);
  });
  $("map").replaceChildren(element("table", {}, element("thead", {}, head), element("tbody", {}, ...lines)));
}

function ask(problem, protocol) {
  const again = state.problem === problem && state.protocol === protocol;
  Object.assign(state, again ? { problem: null, protocol: null } : { problem, protocol });
  const focused = document.activeElement?.getAttribute?.("title");
  filtered();
  if (focused) document.querySelector(`#map [title="${CSS.escape(focused)}"]`)?.focus();
}

function filtered() {
  heatMap();
  const said = [state.problem === null ? "" : nameOf(state.problem), state.protocol || ""].filter(Boolean).join(", ");
  $("filter").replaceChildren(`Below: ${state.file.name}${said ? `, ${said}. ` : ", all problems and protocols."}`,
    ...(said ? [element("button", { type: "button", id: "clear", onclick: () => ask(state.problem, state.protocol) },
      "Show all")] : []));
  sweepChoices();
  matched();
  if (state.protocol) {
    const article = [...document.querySelectorAll(".pair")].find((each) =>
      each.dataset.protocols.split(" ").includes(state.protocol)
      && (!nameOf(0).startsWith("or_reduce") || each.dataset.name === "or_reduce"));
    if (article) $("pair").value = article.dataset.name;
    showPair();
  }
  showMatrix();
  rowsShown = 200;
  allRows();
}

function chooseFile() {
  state.file = D.files.find((file) => file.name === $("file").value);
  Object.assign(state, { problem: null, protocol: null });
  const clocks = state.file.clocks;
  if (!clocks.includes(state.clock)) state.clock = clocks[0];
  options($("heat-clock"), clocks, clocks.map((clock) => D.clocks[clock]));
  $("heat-clock").value = state.clock;
  filtered();
}

// --- Latency ----------------------------------------------------------------------------------------------------

const COLOURS = ["#bf3989", "#bf8700", "#8250df", "#cf5c14", "#0a7d8c", "#a0781e", "#6a8ee0", "#c0506a"];
const SHAPES = {
  circle: (x, y) => drawn("circle", { cx: x, cy: y, r: 5 }),
  square: (x, y) => drawn("rect", { x: x - 4.5, y: y - 4.5, width: 9, height: 9 }),
  triangle: (x, y) => drawn("path", { d: `M${x} ${y - 6}l6 10h-12z` }),
  diamond: (x, y) => drawn("path", { d: `M${x} ${y - 6}l6 6l-6 6l-6 -6z` }),
};
const toggled = new Set(["best triton", "best tilus", "floor"]);
let defaultBaseline = true;

function sweepChoices() {
  const before = state.file.sweeps[$("sweep").value];
  options($("sweep"), state.file.sweeps.map((_, i) => i), state.file.sweeps.map(([axis, problems]) =>
    `${axis.toUpperCase()}: ${nameOf(problems[0])}${problems.length > 1 ? ` to ${nameOf(problems.at(-1))}` : ""}`));
  const fits = (sweep) => sweep && (state.problem === null || sweep[1].includes(state.problem));
  const place = fits(before) ? state.file.sweeps.indexOf(before) : state.file.sweeps.findIndex(fits);
  $("sweep").value = Math.max(0, place);
  latency();
}

function seriesOf(problems) {
  const rows = timed().filter((row) => problems.includes(row.problem)
    && (!state.protocol || row.protocol === state.protocol || isBaseline(row)));
  const along = (chosen) => problems.map((problem) => [problem, fastest(rows.filter((row) =>
    row.problem === problem && chosen(row)))]).filter(([, row]) => row);
  const baselines = [...new Set(rows.filter(isBaseline).map((row) => row.contender))];
  const names = [...new Set(rows.map((row) => row.contender))].filter((name) => !baselines.includes(name));
  const series = [
    ...baselines.map((name) => ({ name, colour: "var(--other)", shape: "square", on: defaultBaseline,
      points: along((row) => row.contender === name) })),
    { name: "best triton", colour: "var(--triton)", shape: "circle", points: along((row) => row.language === "triton") },
    { name: "best tilus", colour: "var(--tilus)", shape: "triangle", points: along((row) => row.language === "tilus") },
    { name: "floor", colour: "var(--other)", dashed: true, points: along((row) => row.timing[state.clock].floor !== null) },
    ...names.map((name, i) => ({ name, colour: COLOURS[i % COLOURS.length], shape: "diamond",
      points: along((row) => row.contender === name) })),
  ];
  return series.filter((one) => one.points.length)
    .map((one) => ({ ...one, on: one.on ?? toggled.has(one.name) }));
}

function ticks(low, high) {
  const made = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
    for (const digit of high / low > 20 ? [1, 2, 5] : [1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9]) {
      const value = digit * 10 ** power;
      if (value >= low && value <= high) made.push(Number(value.toPrecision(3)));
    }
  }
  return made;
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
  for (const value of ticks(...bounds)) {
    svg.append(drawn("line", { class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value) }),
      drawn("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, String(value)));
  }
  let free = -Infinity;
  for (const value of xTicks) {
    if (x(value) - free < 8 * String(value).length) continue;
    free = x(value);
    svg.append(drawn("line", { class: "grid", x1: free, x2: free, y1: height - bottom, y2: height - bottom + 5 }),
      drawn("text", { x: free, y: height - bottom + 18, "text-anchor": "middle" }, String(value)));
  }
  svg.append(drawn("text", { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, xName),
    drawn("text", { x: 2, y: 12 }, yName));
  return { svg, x, y };
}

function latency() {
  const [axis, problems] = state.file.sweeps[$("sweep").value];
  const size = (problem) => state.file.problems[problem][{ m: 1, n: 2, k: 3 }[axis[0]]];
  const series = seriesOf(problems);
  const shown = series.filter((one) => one.on);
  const value = (one, row) => one.dashed ? row.timing[state.clock].floor : row.timing[state.clock].us;
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
    element("span", { class: "key", style: `background: ${one.colour}` }), one.name)));
  $("point").replaceChildren(element("p", { class: "small" }, "Point at a marker, or Tab to it: its config, interval and command."));
  if (!us.length) return $("chart").replaceChildren(element("p", {}, "No line is chosen, or none was timed so."));
  const sizes = problems.map(size);
  const { svg, x, y } = frameOf(`Latency in microseconds by ${axis.toUpperCase()}, ${D.clocks[state.clock]}`,
    sizes, us, sizes, axis.toUpperCase(), `us, ${D.clocks[state.clock]}`);
  if (state.problem !== null && problems.includes(state.problem)) {
    const at = x(size(state.problem));
    svg.append(drawn("line", { class: "grid", x1: at, x2: at, y1: 22, y2: y(Math.min(...us) / 1.1), "stroke-width": 6 }));
  }
  for (const one of shown) {
    const places = one.points.map(([problem, row]) => [x(size(problem)), y(value(one, row))]);
    svg.append(drawn("polyline", { points: places.map((place) => place.join(",")).join(" "), fill: "none",
      stroke: one.colour, "stroke-width": 2, ...(one.dashed ? { "stroke-dasharray": "6 4" } : {}) }));
    if (one.dashed) continue;
    const marks = one.points.map(([problem, row], i) => {
      const shape = SHAPES[one.shape](...places[i]);
      shape.setAttribute("fill", row.hollow ? "var(--bg)" : one.colour);
      shape.setAttribute("stroke", one.colour);
      const t = row.timing[state.clock];
      const mark = drawn("g", { class: "mark", tabindex: i ? -1 : 0, role: "img",
        "aria-label": `${one.name}, ${nameOf(problem)}: ${t.us.toFixed(2)} us, ${row.contender}${row.hollow ? ", config not searched for this shape and GPU" : ""}` },
        drawn("circle", { class: "ring", cx: places[i][0], cy: places[i][1], r: 11 }), shape);
      for (const event of ["focus", "pointerenter", "click"]) mark.addEventListener(event, () => tell(row));
      mark.addEventListener("keydown", (event) => {
        const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
        if (step && marks[i + step]) {
          event.preventDefault();
          mark.setAttribute("tabindex", -1);
          marks[i + step].setAttribute("tabindex", 0);
          marks[i + step].focus();
        }
      });
      return mark;
    });
    svg.append(...marks);
  }
  const legend = element("p", { class: "small" }, ...shown.flatMap((one) =>
    [element("span", { class: "key", style: `background: ${one.colour}` }), ` ${one.name}   `]));
  $("chart").replaceChildren(legend, svg);
}

function tell(row) {
  const t = row.timing[state.clock];
  const times = isBaseline(row) ? "the baseline" : `${t.speedup.toFixed(2)}x the baseline (${t.low.toFixed(2)}-${t.high.toFixed(2)})`;
  const config = row.config ? `${row.config} (${row.from}${row.hollow ? ": not searched for this shape, GPU and kernel" : ""})` : "no config";
  $("point").replaceChildren(
    element("p", {}, element("b", {}, row.contender), ` ${nameOf(row.problem)}: ${t.us.toFixed(2)} us (${t.q1.toFixed(2)}-${t.q3.toFixed(2)}), ${times}`),
    element("p", {}, config), element("p", {}, element("code", {}, row.command)));
}

// --- tilus over Triton, at one config ---------------------------------------------------------------------------

function matched() {
  const found = D.files.flatMap((file) => (file.matched[state.clock] || []).map((line) => [file, ...line]))
    .filter(([file, problem, , protocol]) => (!state.protocol || text(protocol) === state.protocol)
      && (state.problem === null || file.problems[problem][0] === nameOf(state.problem)));
  const any = D.files.some((file) => Object.values(file.matched).some((lines) => lines.length));
  $("unmatched").hidden = any;
  if (!found.length) {
    return $("scatter").replaceChildren(...(any ? [element("p", {}, "None of these was recorded at matched configs.")] : []));
  }
  const at = found.map((line) => line[5]), own = found.map((line) => line[6]);
  const all = [...at, ...own, 0.95, 1.05];
  const { svg, x, y } = frameOf("tilus over Triton at one config, by that at each one's best", all, all,
    ticks(Math.min(...all), Math.max(...all)), "at each one's best config", "at one config");
  svg.append(drawn("line", { class: "grid", x1: x(Math.min(...all)), y1: y(Math.min(...all)), x2: x(Math.max(...all)), y2: y(Math.max(...all)) }));
  found.forEach(([file, problem, kernel, , config, one, best]) => {
    const said = `${text(kernel)} @${text(config)}, ${file.problems[problem][0]}: ${one.toFixed(2)} at one config, ${best.toFixed(2)} at each one's best`;
    const colour = `var(--${text(config)})`;
    svg.append(drawn("g", { class: "mark", tabindex: 0, role: "img", "aria-label": said },
      drawn("title", {}, said), drawn("circle", { cx: x(best), cy: y(one), r: 5, fill: colour, stroke: colour })));
  });
  $("scatter").replaceChildren(svg);
}

// --- Pairs and matrix -------------------------------------------------------------------------------------------

function showPair() {
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

function showMatrix() {
  for (const one of document.querySelectorAll(".matrix")) {
    one.classList.toggle("hidden", one.dataset.file !== state.file.name);
    for (const table of one.querySelectorAll("table")) {
      const place = [...table.tHead.rows[0].cells].findIndex((cell) => cell.textContent === "protocol");
      for (const line of table.tBodies[0].rows) {
        line.hidden = Boolean(state.protocol) && place >= 0 && line.cells[place].textContent !== state.protocol;
      }
    }
  }
}

// --- All rows ---------------------------------------------------------------------------------------------------

const COLUMNS = [
  ["problem", (line) => line.name], ["contender", (line) => line.row.contender], ["clock", (line) => line.clock],
  ["us", (line) => line.t?.us], ["x baseline", (line) => line.t?.speedup],
  ["95 %", (line) => line.t ? `${line.t.low.toFixed(2)}-${line.t.high.toFixed(2)}` : ""],
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
  if (order.column !== null) {
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
  $("count").textContent = `${lines.length} rows and clocks${$("every").checked ? " of all files" : ` of ${state.file.name}`}; ${Math.min(rowsShown, lines.length)} shown.`;
  $("all").tHead.rows[0].replaceChildren(...COLUMNS.map(([name], i) => element("th", { scope: "col",
    "aria-sort": order.column === i ? (order.down ? "descending" : "ascending") : "none" },
    element("button", { type: "button", onclick: () => {
      order = { column: i, down: order.column === i && !order.down };
      allRows();
      $("all").tHead.rows[0].cells[i].firstChild.focus();
    } }, name + (order.column === i ? (order.down ? " ↓" : " ↑") : "")))));
  const shown = (value, i) => typeof value === "number" ? value.toFixed(i === 3 ? 2 : 3) : value ?? "";
  $("all").tBodies[0].replaceChildren(...lines.slice(0, rowsShown).map((line) => element("tr", { title: line.row.command },
    ...COLUMNS.map(([, of], i) => element("td", { class: [3, 4].includes(i) ? "number" : null }, shown(of(line), i))))));
  $("further").hidden = lines.length <= rowsShown;
}

function download() {
  const quoted = (value) => /[",\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value;
  const columns = [...COLUMNS.filter(([name]) => name !== "95 %"), ...LEFT];
  const lines = [columns.map(([name]) => name), ...chosenRows().map((line) => columns.map(([, of]) => String(of(line) ?? "")))];
  const csv = lines.map((line) => line.map(quoted).join(",")).join("\n") + "\n";
  const link = element("a", { href: URL.createObjectURL(new Blob([csv], { type: "text/csv" })), download: "rows.csv" });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// --- Begin ------------------------------------------------------------------------------------------------------

$("ask").addEventListener("submit", (event) => event.preventDefault());
$("op").addEventListener("change", () => { $("dtype").value = $("op").value === "w4a16" ? "fp16" : "bf16"; });
$("ask").addEventListener("input", answered);
$("ask").addEventListener("change", answered);
$("file").addEventListener("change", chooseFile);
$("heat-clock").addEventListener("change", () => { state.clock = $("heat-clock").value; filtered(); });
for (const radio of document.querySelectorAll("[name=view]")) radio.addEventListener("change", heatMap);
$("sweep").addEventListener("change", latency);
$("pair").addEventListener("change", showPair);
for (const button of document.querySelectorAll(".steps button")) button.addEventListener("click", () => step(button));
for (const each of document.querySelectorAll("[role=tab]")) {
  each.addEventListener("click", () => tab(each));
  each.addEventListener("keydown", (event) => {
    const other = { ArrowLeft: each.previousElementSibling, ArrowRight: each.nextElementSibling }[event.key];
    if (other) { tab(other); other.focus(); }
  });
}
$("search").addEventListener("input", () => { rowsShown = 200; allRows(); });
$("every").addEventListener("change", () => { rowsShown = 200; allRows(); });
$("download").addEventListener("click", download);
$("further").addEventListener("click", () => { rowsShown += 200; allRows(); });
window.addEventListener("resize", () => { latency(); matched(); });

options($("file"), D.files.map((file) => file.name));
$("file").value = state.file.name;
answered();
chooseFile();
showPair();
