// A drawing that can be zoomed, on other scales, relative to the baseline: read from the numbers that a figure carries.
// site.js loads it, with uPlot, when a reader first asks for it; the static drawing stays what is printed and cited.
"use strict";
(() => {
  const DURATIONS = [[5400, 3600, "h"], [120, 60, "min"], [1, 1, "s"], [1e-3, 1e-3, "ms"], [1e-6, 1e-6, "µs"], [0, 1e-9, "ns"]];
  const SIZES = [4, 3, 2, 1, 0].map((power, i) => [power && 1024 ** power, 1024 ** power, ["TiB", "GiB", "MiB", "KiB", "B"][i]]);
  const DECIMAL = [4, 3, 2, 1, 0].map((power, i) => [power && 1e3 ** power, 1e3 ** power, "TGMk"[i] ?? ""]);
  const SCALED = ["B/s", "bit/s", "FLOP/s", "token", "token/s", "Hz"];
  const DASHES = { d1: [6, 3], d2: [2, 3] };
  const HEIGHT = 380;
  const FEW = 12; // so many places of a sweep are marked each

  const digits = v => Number.isInteger(v) && Math.abs(v) < 1e4 ? String(v)
    : Math.abs(v) >= 1e6 || Math.abs(v) < 1e-3 ? v.toExponential(2) : Math.abs(v) >= 100 ? v.toFixed(0) : String(Number(v.toPrecision(3)));
  const scaled = (v, steps, unit = "") => {
    const [, scale, name] = steps.find(([least]) => Math.abs(v) >= least);
    return `${digits(v / scale)} ${name}${unit}`;
  };
  const written = (v, unit) => v === 0 ? `0 ${unit}`.trim() : unit === "s" ? scaled(v, DURATIONS) : unit === "B" ? scaled(v, SIZES)
    : SCALED.includes(unit) ? scaled(v, DECIMAL, unit) : unit === "ratio" || unit === "1" ? digits(v) : `${digits(v)} ${unit}`.trim();

  // Colours as the style sheet has them now: a canvas knows no variables.
  const painted = (kind, variable) => {
    const probe = document.createElement("span");
    probe.className = kind;
    probe.style.color = `var(${variable})`;
    document.body.append(probe);
    const found = getComputedStyle(probe).color;
    probe.remove();
    const [r, g, b] = found.match(/[\d.]+/g).map((part, i, all) => (/^color/.test(found) ? all[i] * 255 : part));
    return alpha => `rgba(${r}, ${g}, ${b}, ${alpha})`;
  };

  const divided = (column, by) => column?.map((v, i) => (v == null || !by[i] ? null : v / by[i]));
  const positive = columns => columns.flat().every(v => v == null || v > 0);

  // Show a figure's numbers; options are {x, y: logarithmic, relative, zoom: [from, to]}, and told is called with a zoom.
  const draw = (figure, place, plot, options, told) => {
    const base = options.relative && plot.series.find(s => s.name === plot.base);
    const data = [plot.x], series = [{ label: plot.xName }], bands = [];
    const unit = base ? "ratio" : plot.yUnit;
    for (const s of plot.series) {
      const paint = painted(s.colour, "--c");
      data.push(base ? divided(s.y, base.y) : s.y);
      series.push({
        label: s.name, stroke: paint(1), width: 2, dash: DASHES[s.colour.split(" ")[1]], spanGaps: true,
        points: { show: plot.x.length <= 120, size: 6, fill: paint(1) },
        value: (_, v) => (v == null ? "–" : written(v, unit)),
      });
      if (!s.low || base) continue; // a quotient of two values has no interval here
      data.push(s.high, s.low);
      const edge = { label: "", class: "edge", stroke: "transparent", width: 0, points: { show: false }, spanGaps: true };
      series.push(edge, { ...edge });
      bands.push({ series: [data.length - 2, data.length - 1], fill: paint(0.13) });
    }
    const [text, line] = [painted("", "--muted")(1), painted("", "--line")(1)];
    const axis = { stroke: text, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 }, font: "12px system-ui, sans-serif" };
    const atX = v => plot.names ? plot.names[v] ?? "" : written(v, plot.xUnit);
    const marked = plot.x.length <= FEW && !plot.names;
    series[0].value = (_, v) => (v == null ? "" : atX(v));
    const ends = [plot.x[0], plot.x.at(-1)];
    const log = { x: options.x && positive([plot.x]), y: options.y && positive(data.slice(1)) };
    const room = log.x ? (ends[1] / ends[0]) ** 0.02 : (ends[1] - ends[0]) * 0.02 || 1;
    const whole = log.x ? [ends[0] / room, ends[1] * room] : [ends[0] - room, ends[1] + room];
    const view = options.zoom ?? whole;
    const chart = new uPlot({
      width: Math.max(320, figure.clientWidth), height: HEIGHT, padding: [null, plot.names ? 36 : null, null, null], series, bands,
      scales: {
        x: { time: false, distr: log.x ? 3 : 1, range: () => view },
        y: { distr: log.y ? 3 : 1, range: log.y ? undefined : (_, low, high) => {
          const pad = (high - low || Math.abs(high) || 1) * 0.06;
          return [low - pad, high + pad];
        } },
      },
      axes: [
        { ...axis, label: plot.xName, values: (_, ticks) => ticks.map(v => (plot.names && !Number.isInteger(v) ? "" : v == null ? "" : atX(v))),
          ...(marked ? { splits: (_, i, low, high) => plot.x.filter(v => v >= low && v <= high), filter: (_, marks) => marks } : {}), space: 90 },
        { ...axis, label: base ? `${plot.yName}, × ${plot.base}` : plot.yName, size: 84,
          values: (_, ticks) => ticks.map(v => (v == null ? "" : written(v, unit))) },
      ],
      cursor: { drag: { x: true, y: false, setScale: false } },
      hooks: { setSelect: [u => { if (u.select.width > 2) told([u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")]); }] },
    }, data, place);
    return { chart, whole, view, log: log.x, can: { x: positive([plot.x]), y: positive(data.slice(1)) } };
  };

  // Turn a figure into one that can be zoomed; the address keeps how it is shown.
  window.pacelinePlot = (figure, number, read, keep, make) => {
    const plot = JSON.parse(figure.dataset.plot);
    const held = figure.querySelector(".scroll");
    const saved = (read().get(`c${number}`) ?? "").split(",");
    const options = saved[0] ? { x: saved[0].includes("x"), y: saved[0].includes("y"), relative: saved[0].includes("r") }
      : { x: !!plot.log[0], y: !!plot.log[1], relative: false };
    options.zoom = saved.length === 3 && saved.slice(1).every(v => isFinite(v)) ? saved.slice(1).map(Number) : null;
    const [tools, place, note] = [make("p", { className: "plot-tools" }), make("div"), make("p", { className: "note" })];
    const box = make("div", { className: "zoomed" }, tools, place, note);
    held.after(box);
    held.hidden = true;
    let shown = null;

    const save = () => keep(`c${number}`, [`z${options.x ? "x" : ""}${options.y ? "y" : ""}${options.relative ? "r" : ""}`,
      ...(options.zoom ?? []).map(v => Number(v.toPrecision(6)))].join(","));
    const zoom = range => { options.zoom = range; update(); };
    // Keep the middle and widen by a factor, or move by a share of what is seen: on the axis as it is drawn.
    const move = (factor, share) => {
      const { view, whole } = shown;
      const [to, from] = shown.log ? [Math.log, Math.exp] : [v => v, v => v];
      const [low, high] = view.map(to);
      const [middle, half] = [(low + high) / 2 + share * (high - low), (high - low) / 2 * factor];
      const range = [Math.max(whole[0], from(middle - half)), Math.min(whole[1], from(middle + half))];
      if (range[1] > range[0]) zoom(range[0] <= whole[0] && range[1] >= whole[1] ? null : range);
    };
    const button = (text, title, act) => {
      const made = make("button", { type: "button", textContent: text, title });
      made.addEventListener("click", act);
      tools.append(made);
      return made;
    };
    const toggle = (text, title, key) => {
      const made = button(text, title, () => { options[key] = !options[key]; update(); });
      return () => {
        made.setAttribute("aria-pressed", String(!!options[key]));
        made.disabled = !options[key] && (shown?.can[key] === false);
      };
    };
    const states = [toggle("log x", "Logarithmic axis across", "x"), toggle("log y", "Logarithmic axis upwards", "y")];
    if (plot.base && plot.series.length > 1) states.push(toggle(`× ${plot.base}`, "Relative to the baseline, place by place", "relative"));
    button("+", "Zoom in", () => move(0.5, 0));
    button("−", "Zoom out", () => move(2, 0));
    button("←", "Move left", () => move(1, -0.25));
    button("→", "Move right", () => move(1, 0.25));
    const all = button("All", "Show all of it", () => zoom(null));
    place.addEventListener("dblclick", () => zoom(null));

    const update = () => {
      shown?.chart.destroy();
      shown = draw(figure, place, plot, options, zoom);
      for (const state of states) state();
      all.disabled = !options.zoom;
      note.textContent = options.relative
        ? "Quotients of the values, without intervals; what was paired by launch is in the table, against the baseline."
        : "Drag across to zoom, double-click to see all; bands are 95 % intervals, or the range of two or three launches.";
      save();
    };
    update();
    const again = new MutationObserver(update); // colours of the other theme
    again.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    return () => {
      again.disconnect();
      shown.chart.destroy();
      box.remove();
      held.hidden = false;
      keep(`c${number}`, "");
    };
  };
})();
