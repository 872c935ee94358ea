// Filters and orders tables, keeps their state in the address, and switches between light and dark.
// Everything is readable without it: rows, numbers and charts are in the pages.
"use strict";
(() => {
  const LEAST_ROWS = 8; // shorter tables are read faster than filtered
  const SCALES = {
    ns: 1e-9, "µs": 1e-6, ms: 1e-3, s: 1, min: 60, h: 3600,
    B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40,
    k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15,
  };

  // Return the number at the beginning of a text in base units, or NaN.
  const numberOf = text => {
    const m = text.trim().replace("−", "-").match(/^(-?\d+(?:\.\d+)?(?:e[-+]?\d+)?)\s*([^\s\d±×[]*)/i);
    if (!m) return NaN;
    const unit = m[2];
    const scale = SCALES[unit] ?? (/^[kMGTP](B|bit|FLOP|token|Hz)/.test(unit) ? SCALES[unit[0]] : 1);
    return Number(m[1]) * scale;
  };

  // Numbers before texts before absent ones, whatever the direction.
  const order = (a, b, down) => {
    const [x, y] = [numberOf(a), numberOf(b)];
    const [none, other] = [a === "" || a === "–", b === "" || b === "–"];
    if (none || other) return none - other;
    if (isNaN(x) !== isNaN(y)) return isNaN(x) - isNaN(y);
    const found = isNaN(x) ? a.localeCompare(b, "en", { numeric: true }) : x - y;
    return down ? -found : found;
  };

  const read = () => new URLSearchParams(location.search);
  const keep = (key, value) => {
    const state = read();
    value ? state.set(key, value) : state.delete(key);
    const query = state.toString();
    try {
      history.replaceState(null, "", location.pathname + (query ? "?" + query : "") + location.hash);
    } catch { /* some browsers forbid it for files: the state is then lost on reload */ }
  };

  // Give every row its own copy of the cells that it shares with its group, so that rows can be moved and hidden.
  const flatten = table => {
    for (const body of table.tBodies) {
      const shared = [...(body.rows[0]?.cells ?? [])].filter(cell => cell.rowSpan > 1);
      for (const cell of shared) cell.rowSpan = 1;
      for (const row of [...body.rows].slice(1)) row.prepend(...shared.map(cell => cell.cloneNode(true)));
    }
    table.classList.add("flat");
  };

  const equip = (table, number) => {
    const original = [...table.tBodies].map(b => b.cloneNode(true));
    const count = original.reduce((n, b) => n + b.rows.length, 0);
    if (count < LEAST_ROWS || !table.tHead) return;
    const heads = [...table.tHead.rows[0].cells];
    const state = { words: read().get(`q${number}`) ?? "", column: -1, down: false };
    const saved = (read().get(`s${number}`) ?? "").match(/^(\d+)(d?)$/);
    if (saved && Number(saved[1]) < heads.length) [state.column, state.down] = [Number(saved[1]), saved[2] === "d"];

    const tools = document.createElement("p");
    tools.className = "tools";
    const label = document.createElement("label");
    label.textContent = "Rows with ";
    const input = document.createElement("input");
    input.type = "search";
    input.value = state.words;
    label.append(input);
    const said = document.createElement("span");
    said.className = "muted";
    said.setAttribute("role", "status");
    tools.append(label, said);
    table.closest(".scroll").before(tools);

    const show = () => {
      for (const body of [...table.tBodies]) body.remove();
      table.append(...original.map(b => b.cloneNode(true)));
      table.classList.remove("flat");
      const words = state.words.toLowerCase().split(/\s+/).filter(Boolean);
      if (words.length || state.column >= 0) {
        flatten(table);
        let rows = [...table.tBodies].flatMap(b => [...b.rows]);
        rows = rows.filter(r => words.every(w => r.textContent.toLowerCase().includes(w)));
        if (state.column >= 0) {
          const text = row => row.cells[state.column]?.textContent.trim() ?? "";
          rows = rows.map((r, i) => [text(r), i, r])
            .sort((a, b) => order(a[0], b[0], state.down) || a[1] - b[1])
            .map(entry => entry[2]);
        }
        const body = document.createElement("tbody");
        body.append(...rows);
        for (const old of [...table.tBodies]) old.remove();
        table.append(body);
        said.textContent = rows.length === count ? "" : `${rows.length} of ${count}`;
      } else said.textContent = "";
      heads.forEach((h, i) => h.setAttribute(
        "aria-sort", i !== state.column ? "none" : state.down ? "descending" : "ascending"));
    };

    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent;
      head.replaceChildren(button);
      button.addEventListener("click", () => { // up, down, as it was
        if (state.column !== column) [state.column, state.down] = [column, false];
        else if (!state.down) state.down = true;
        else [state.column, state.down] = [-1, false];
        keep(`s${number}`, state.column < 0 ? "" : `${state.column}${state.down ? "d" : ""}`);
        show();
      });
    });
    input.addEventListener("input", () => {
      state.words = input.value;
      keep(`q${number}`, state.words.trim());
      show();
    });
    if (state.words || state.column >= 0) show();
  };

  // Light, dark, or as the system has it.
  const THEMES = ["auto", "light", "dark"];
  const themed = name => {
    if (name === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = name;
  };
  const stored = () => {
    try { return localStorage.getItem("paceline-theme") ?? "auto"; } catch { return "auto"; }
  };
  const switcher = () => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "theme";
    let name = THEMES.includes(stored()) ? stored() : "auto";
    const write = () => { button.textContent = `Theme: ${name}`; themed(name); };
    button.addEventListener("click", () => {
      name = THEMES[(THEMES.indexOf(name) + 1) % THEMES.length];
      try { localStorage.setItem("paceline-theme", name); } catch { /* this page alone, then */ }
      write();
    });
    write();
    document.querySelector(".top .wrap").append(button);
  };

  switcher();
  document.querySelectorAll(".scroll > table").forEach(equip);
})();
