// Finds pages, filters and orders tables, chooses their columns, sets rows, techniques and machines side by side, makes
// charts that can be zoomed and files of what is seen when they are asked for, keeps choices in the address, and switches
// between light and dark.
// Everything is readable without it: rows, numbers and charts are in the pages.
"use strict";
(() => {
  const HERE = document.currentScript.src;
  const LEAST_ROWS = 8; // shorter tables are read faster than filtered
  const SCALES = {
    ns: 1e-9, "µs": 1e-6, ms: 1e-3, s: 1, min: 60, h: 3600,
    B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40,
    k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15,
  };

  const UNITS = [["ns", "µs", "ms", "s", "min", "h"], ["B", "KiB", "MiB", "GiB", "TiB"]];
  const QUANTITY = /(\d+(?:\.\d+)?(?:e[-+]?\d+)?) (ns|µs|ms|s|min|h|B|KiB|MiB|GiB|TiB)(?![\w/])/g;
  const MOST_CHOICES = 12; // a list of more values is no shorter than the words that find them

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

  // Return what a cell is called: a technique's name without the notes beside it, a verdict without its launches.
  const named = cell => (cell.classList.contains("technique") && cell.querySelector("a") || cell).textContent.trim().replace(/ \([^)]*\)$/, "");

  // Write all quantities of a kind in one unit, with the digits that they had.
  const inUnit = (table, names, name) => {
    const walker = document.createTreeWalker(table, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      if (node.parentElement.closest("thead, svg")) continue;
      node.data = node.data.replace(QUANTITY, (whole, number, unit) => {
        if (!names.includes(unit)) return whole;
        const value = Number((Number(number) * SCALES[unit] / SCALES[name]).toPrecision(Math.max(3, number.replace(/e.*|\D/g, "").length)));
        return `${Math.abs(value) >= 1e7 || (value && Math.abs(value) < 1e-4) ? value.toExponential() : value} ${name}`;
      });
    }
  };

  // The state lies behind the # of the address: it works for files, and what is not a state (an anchor) stays one.
  const read = () => new URLSearchParams(location.hash.includes("=") ? location.hash.slice(1) : "");
  const keep = (key, value) => {
    const state = read();
    value ? state.set(key, value) : state.delete(key);
    const text = state.toString();
    try {
      history.replaceState(null, "", location.pathname + location.search + (text ? "#" + text : ""));
    } catch { /* some browsers forbid it for files: the state is then lost on reload */ }
  };

  const make = (tag, facts = {}, ...children) => {
    const made = Object.assign(document.createElement(tag), facts);
    made.append(...children);
    return made;
  };

  // What few readers need lies beside this file and is read by who wants it, once.
  const reading = new Map();
  const loaded = name => {
    if (!reading.has(name)) reading.set(name, new Promise((done, failed) =>
      document.head.append(make("script", { src: new URL(name, HERE).href, onload: done, onerror: failed }))));
    return reading.get(name);
  };

  // Buttons that write what is seen to a file.
  const savers = (kinds, subject) => kinds.map(kind => {
    const button = make("button", { type: "button", className: "zoom", textContent: kind, title: `Save what is seen as ${kind}` });
    button.addEventListener("click", () => loaded("export.js").then(() => window.pacelineExport(kind, subject(), make))
      .catch(() => { button.textContent = `${kind}: export.js is not beside site.js`; }));
    return button;
  });
  const saveTable = find => make("details", { className: "chooser save" }, make("summary", { textContent: "Save" }), ...savers(["CSV", "LaTeX"], find));

  // Give every row its own copy of the cells that it shares with its group, so that rows can be moved and hidden.
  const flatten = table => {
    for (const body of table.tBodies) {
      const shared = [...(body.rows[0]?.cells ?? [])].filter(cell => cell.rowSpan > 1);
      for (const cell of shared) cell.rowSpan = 1;
      for (const row of [...body.rows].slice(1)) row.prepend(...shared.map(cell => cell.cloneNode(true)));
    }
    table.classList.add("flat");
  };

  // Return the cells of every row with those that it shares with its group, without moving any.
  const rowsOf = body => {
    const shared = [...(body.rows[0]?.cells ?? [])].filter(cell => cell.rowSpan > 1);
    return [...body.rows].map((row, i) => i ? [...shared, ...row.cells] : [...row.cells]);
  };

  // Name every row by what tells it apart, so that pins outlive another order of the rows.
  const nameRows = (table, technique) => {
    for (const body of table.tBodies) {
      const keys = [...(body.rows[0]?.cells ?? [])].filter(c => c.scope === "rowgroup").map(c => c.textContent.trim());
      for (const row of body.rows) {
        const cell = [...row.cells].find(c => c.classList.contains("technique"));
        if (cell && technique >= 0) row.dataset.key = [...keys, cell.querySelector("a, span")?.textContent.trim()].join(" | ");
      }
    }
  };

  // Lay pinned rows side by side: columns become rows, and numbers are set against those of the first.
  const beside = (heads, rows) => {
    const names = rows.map(r => r.dataset.key);
    const body = heads.map((head, i) => {
      const texts = rows.map(r => r.cells[i]?.textContent.trim() ?? "");
      const first = numberOf(texts[0]);
      return make("tr", {}, make("th", { scope: "row", textContent: head }), ...texts.map((text, n) => {
        const share = numberOf(text) / first;
        const said = n && isFinite(share) && /[a-zµ%]/i.test(text) && !/launches\)/.test(text) ? ` (${share.toPrecision(3)} × first)` : "";
        return make("td", { textContent: text + said });
      }));
    });
    const top = make("tr", {}, make("th", { scope: "col", textContent: "pinned" }),
      ...names.map(name => make("th", { scope: "col", textContent: name })));
    const table = make("table", {}, make("thead", {}, top), make("tbody", {}, ...body));
    return make("section", { className: "beside" },
      make("h3", { textContent: "Side by side" }),
      make("div", { className: "scroll", tabIndex: 0, role: "region", ariaLabel: "Side by side" }, table),
      saveTable(() => table),
      make("p", { className: "note", textContent: "Quotients of the values shown, without an interval; what was paired by launch is the column against the baseline." }));
  };

  const equip = (table, number) => {
    const titles = [...(table.tHead?.rows[0].cells ?? [])].map(c => c.textContent.trim());
    const pinnable = titles.includes("technique") && titles.some(t => t.endsWith(" baseline"));
    if (pinnable) nameRows(table, titles.indexOf("technique"));
    const count = [...table.tBodies].reduce((n, b) => n + b.rows.length, 0);
    if (count < LEAST_ROWS || !table.tHead) {
      if (count > 1 && table.tHead) table.closest(".scroll").after(saveTable(() => table));
      return;
    }
    const heads = [...table.tHead.rows[0].cells];
    const state = { words: read().get(`q${number}`) ?? "", by: [] }; // by: columns that order the rows, the first one first
    for (const part of (read().get(`s${number}`) ?? "").split(".")) {
      const saved = part.match(/^(\d+)(d?)$/);
      const column = saved && Number(saved[1]);
      if (saved && column < heads.length && !state.by.some(b => b.column === column)) state.by.push({ column, down: saved[2] === "d" });
    }

    // Columns of few values are chosen from a list: parameters, techniques, verdicts, but not figures.
    const everyRow = [...table.tBodies].flatMap(rowsOf);
    const facets = titles.map((title, column) => {
      const found = everyRow.map(cells => cells[column]).filter(Boolean);
      const texts = found.map(named);
      const kinds = [...new Set(texts)];
      const figures = texts.some(t => /[±×[]/.test(t)) || (found[0]?.tagName === "TD" && texts.every(t => t === "" || t === "–" || !isNaN(numberOf(t))));
      if (!title || figures || kinds.length < 2 || kinds.length > MOST_CHOICES || kinds.length > count / 2) return null;
      kinds.sort((a, b) => order(a, b, false));
      const saved = read().get(`f${number}.${column}`);
      return { column, title, kinds, chosen: kinds.includes(saved) ? saved : null };
    }).filter(Boolean);
    const written = new Set(everyRow.flatMap(cells => cells.flatMap(c => [...c.textContent.matchAll(QUANTITY)].map(m => m[2]))));
    const unitKinds = UNITS.filter(names => names.filter(n => written.has(n)).length > 1);
    const units = new Map(unitKinds.map(names => [names, names.find(n => read().get(`u${number}`)?.split(".").includes(n)) ?? null]));

    const hidden = new Set((read().get(`h${number}`) ?? "").split(".").filter(Boolean).map(Number));
    const pins = new Set(pinnable ? read().getAll("pin") : []);

    const input = make("input", { type: "search", value: state.words });
    const said = make("span", { className: "muted", role: "status" });
    const choices = titles.map((title, column) => {
      const box = make("input", { type: "checkbox", checked: !hidden.has(column) });
      box.addEventListener("change", () => {
        box.checked ? hidden.delete(column) : hidden.add(column);
        keep(`h${number}`, [...hidden].sort((a, b) => a - b).join("."));
        show();
      });
      return make("label", {}, box, " " + title);
    });
    const chooser = make("details", { className: "chooser" }, make("summary", { textContent: "Columns" }), ...choices);
    const list = (name, kinds, chosen, choose) => {
      const select = make("select", {}, new Option("all", ""), ...kinds.map(kind => new Option(kind || "–", kind, false, kind === chosen)));
      select.setAttribute("aria-label", name === "in" ? "Unit" : `Rows of ${name}`);
      select.addEventListener("change", () => { choose(select.selectedIndex ? select.value : null); show(); });
      return make("label", {}, name + " ", select);
    };
    const lists = facets.map(facet => list(facet.title, facet.kinds, facet.chosen, value => {
      facet.chosen = value;
      keep(`f${number}.${facet.column}`, value);
    }));
    for (const names of units.keys()) {
      const label = list("in", names, units.get(names), name => {
        units.set(names, name);
        keep(`u${number}`, [...units.values()].filter(Boolean).join("."));
      });
      label.querySelector("option").textContent = names.includes("s") ? "automatic time units" : "automatic size units";
      lists.push(label);
    }
    const tools = make("div", { className: "tools" }, make("label", {}, "Filter rows ", input), ...lists, said, chooser, saveTable(() => table));
    table.closest(".scroll").before(tools);
    let panel = null;

    // The rows as they came: copied when they are first moved, since a long table costs a second copy of the page.
    let original = null;
    const bodies = () => {
      original ??= [...table.tBodies].map(b => b.cloneNode(true));
      const copies = original.map(b => b.cloneNode(true));
      for (const body of copies) body.querySelectorAll("input.pin").forEach(box => box.remove());
      return copies;
    };

    const pin = row => {
      const box = make("input", { type: "checkbox", className: "pin", checked: pins.has(row.dataset.key), title: "Pin to set side by side" });
      box.setAttribute("aria-label", `Pin ${row.dataset.key}`);
      box.addEventListener("change", () => {
        box.checked ? pins.add(row.dataset.key) : pins.delete(row.dataset.key);
        const state = read();
        state.delete("pin");
        for (const name of pins) state.append("pin", name);
        try { history.replaceState(null, "", location.pathname + location.search + "#" + state); } catch { /* as above */ }
        compare();
      });
      row.querySelector(".technique")?.prepend(box);
    };

    const compare = () => {
      panel?.remove();
      panel = null;
      if (pins.size < 2) return;
      const whole = table.cloneNode(false);
      whole.append(...bodies());
      flatten(whole);
      const rows = [...whole.tBodies].flatMap(b => [...b.rows]).filter(r => pins.has(r.dataset.key));
      const order = [...pins];
      rows.sort((a, b) => order.indexOf(a.dataset.key) - order.indexOf(b.dataset.key));
      if (rows.length < 2) return;
      panel = beside(titles, rows);
      table.closest(".scroll").after(panel);
    };

    const show = () => {
      const whole = bodies();
      for (const body of [...table.tBodies]) body.remove();
      table.append(...whole);
      table.classList.remove("flat");
      const words = state.words.toLowerCase().split(/\s+/).filter(Boolean);
      const chosen = facets.filter(f => f.chosen !== null);
      if (words.length || state.by.length || hidden.size || chosen.length) {
        flatten(table);
        let rows = [...table.tBodies].flatMap(b => [...b.rows]);
        rows = rows.filter(r => chosen.every(f => r.cells[f.column] && named(r.cells[f.column]) === f.chosen));
        rows = rows.filter(r => words.every(w => r.textContent.toLowerCase().includes(w)));
        if (state.by.length) {
          const texts = row => state.by.map(b => row.cells[b.column]?.textContent.trim() ?? "");
          rows = rows.map((r, i) => [texts(r), i, r])
            .sort((a, b) => state.by.reduce((found, { down }, n) => found || order(a[0][n], b[0][n], down), 0) || a[1] - b[1])
            .map(entry => entry[2]);
        }
        const body = document.createElement("tbody");
        body.append(...rows);
        for (const old of [...table.tBodies]) old.remove();
        table.append(body);
        said.textContent = rows.length === count ? "" : `${rows.length} of ${count}`;
      } else said.textContent = "";
      for (const [names, name] of units) if (name) inUnit(table, names, name);
      for (const row of table.rows) {
        let column = 0;
        for (const cell of row.cells) {
          if (cell.tagName === "TH" || hidden.size) cell.hidden = cell.colSpan === 1 && hidden.has(column);
          column += cell.colSpan;
        }
      }
      dress();
    };

    const dress = () => {
      if (pinnable) for (const row of table.rows) if (row.dataset.key) pin(row);
      heads.forEach((h, i) => {
        const place = state.by.findIndex(b => b.column === i);
        h.setAttribute("aria-sort", place < 0 ? "none" : state.by[place].down ? "descending" : "ascending");
        if (state.by.length > 1 && place >= 0) h.dataset.place = place + 1;
        else delete h.dataset.place;
      });
    };

    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent;
      head.replaceChildren(button);
      button.title = "Order by this column; with Shift, within the columns chosen before";
      button.addEventListener("click", event => { // up, down, as it was
        const own = state.by.find(b => b.column === column);
        if (!event.shiftKey) state.by = own ? [own] : [];
        if (!own) state.by.push({ column, down: false });
        else if (!own.down) own.down = true;
        else state.by = state.by.filter(b => b !== own);
        keep(`s${number}`, state.by.map(b => `${b.column}${b.down ? "d" : ""}`).join("."));
        show();
      });
    });
    input.addEventListener("input", () => {
      state.words = input.value;
      keep(`q${number}`, state.words.trim());
      show();
    });
    if (state.words || state.by.length || hidden.size || facets.some(f => f.chosen !== null) || [...units.values()].some(Boolean)) show();
    else dress();
    if (pins.size) compare();
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

  // Two lists to choose runs from, in the place of the list of all their pairs.
  const chooser = (section, number) => {
    const links = [...section.querySelectorAll("a[data-later]")];
    const names = new Map();
    for (const link of links) {
      const [later, earlier] = link.textContent.split(" beside ");
      names.set(link.dataset.later, later).set(link.dataset.earlier, earlier);
    }
    const ids = [...names.keys()];
    const chosen = [`a${number}`, `b${number}`].map((key, side) => {
      const label = document.createElement("label");
      const select = document.createElement("select");
      for (const id of ids) select.add(new Option(names.get(id), id));
      const wanted = read().get(key);
      select.value = names.has(wanted) ? wanted : ids[side];
      select.addEventListener("change", () => { keep(key, select.value); show(); });
      label.append(side ? "beside " : "Run ", select);
      return [label, select];
    });
    const go = document.createElement("a");
    const show = () => {
      const pair = chosen.map(([, select]) => select.value);
      const link = links.find(l => pair.includes(l.dataset.later) && pair.includes(l.dataset.earlier));
      go.textContent = link ? "Compare" : "Choose two different runs";
      if (link) go.href = link.getAttribute("href");
      else go.removeAttribute("href");
    };
    const box = document.createElement("p");
    box.className = "chooser";
    box.append(...chosen.map(([label]) => label), go);
    section.querySelector(".pairs").replaceWith(box);
    show();
  };

  // One box that finds boards, points, techniques, papers, metrics and documents.
  const searcher = () => {
    const input = make("input", { type: "search", placeholder: "Search" });
    input.setAttribute("aria-label", "Search the site");
    const box = make("div", { className: "search", role: "search" }, input);
    const place = make("section", { className: "found wrap", hidden: true, ariaLabel: "Found" });
    const ready = () => loaded("search-index.js").then(() => loaded("search.js"));
    const show = async () => {
      keep("find", input.value.trim());
      place.hidden = !input.value.trim();
      if (place.hidden) return;
      try {
        await ready();
        window.pacelineSearch(input.value, place, HERE, make);
      } catch { place.textContent = "No search: search-index.js or search.js is not beside site.js"; }
    };
    input.addEventListener("focus", () => ready().catch(() => {}));
    input.addEventListener("input", show);
    input.addEventListener("keydown", event => {
      if (event.key === "Escape") { input.value = ""; show(); }
      if (event.key === "Enter") place.querySelector("a")?.click();
    });
    addEventListener("keydown", event => {
      if (event.key !== "/" || event.target.closest("input, select, textarea")) return;
      event.preventDefault();
      input.focus();
    });
    document.querySelector(".top .wrap").append(box);
    document.querySelector(".top").after(place);
    input.value = read().get("find") ?? "";
    if (input.value) show();
  };

  // Two lists of names; what is chosen stands in the address as a and b.
  const two = (names, label, show) => {
    const lists = ["a", "b"].map((key, side) => {
      const select = make("select", {}, new Option("any", ""), ...names.map(name => new Option(name, name)));
      select.value = read().get(key) ?? "";
      if (select.selectedIndex < 0) select.selectedIndex = 0;
      select.addEventListener("change", () => { keep(key, select.value); show(); });
      return [make("label", {}, side ? "beside " : `One ${label} `, select), select];
    });
    return [make("p", { className: "tools" }, ...lists.map(([l]) => l)), () => lists.map(([, select]) => select.value).filter(Boolean)];
  };

  // Pages of pairs: the rows of two techniques, or the columns of two machines.
  const narrowed = place => {
    const table = place.querySelector("table");
    if (!table) return;
    const columns = place.dataset.two === "columns";
    const heads = [...table.tHead.rows[0].cells];
    const namesOf = body => [...body.rows[0].cells].slice(0, 2).map(c => c.textContent.trim());
    const names = columns ? heads.filter(h => h.classList.contains("place")).map(h => h.textContent.trim())
      : [...new Set([...table.tBodies].flatMap(namesOf))].sort();
    const show = () => {
      const chosen = of();
      if (!columns) {
        for (const body of table.tBodies) body.hidden = !chosen.every((name, i) => namesOf(body).includes(name) && chosen.indexOf(name) === i);
        return;
      }
      const few = new Set(chosen).size === 2;
      const hide = heads.map(h => few && (h.classList.contains("all") || (h.classList.contains("place") && !chosen.includes(h.textContent.trim()))));
      heads.forEach((h, i) => { h.hidden = hide[i]; });
      for (const body of table.tBodies) for (const row of body.rows) {
        const cells = [...row.cells];
        cells.forEach((c, i) => { c.hidden = hide[i + heads.length - cells.length]; });
      }
      const both = body => [...body.rows].some(row => [...row.cells].every(c => c.hidden || c.textContent !== "–"));
      for (const body of table.tBodies) body.hidden = few && !both(body);
    };
    const [box, of] = two(names, place.dataset.label, show);
    box.append(saveTable(() => table));
    place.prepend(box);
    show();
  };

  // Links to pages of pairs: those that have both of what is chosen, with the choice in their address.
  const narrowing = section => {
    const links = [...section.querySelectorAll("a[data-members]")];
    if (!links.length) return;
    const label = section.dataset.narrow;
    const members = link => link.dataset.members.split("|");
    const hrefs = links.map(link => link.getAttribute("href"));
    const show = () => {
      const chosen = [...new Set(of())];
      links.forEach((link, i) => {
        link.closest("li").hidden = !chosen.every(name => members(link).includes(name));
        link.href = hrefs[i] + (chosen.length ? "#" + new URLSearchParams(chosen.map((name, n) => ["ab"[n], name])) : "");
      });
      for (const head of section.querySelectorAll("h3")) head.hidden = ![...head.nextElementSibling.children].some(li => !li.hidden);
    };
    const [box, of] = two([...new Set(links.flatMap(members))].sort(), label, show);
    section.querySelector("h2").after(box);
    show();
  };

  let drawing = null;
  const zoomable = (figure, number) => {
    let end = null;
    const button = make("button", { type: "button", className: "zoom", textContent: "Zoom" });
    button.setAttribute("aria-pressed", "false");
    const open = async () => {
      button.disabled = true;
      if (!drawing) document.head.append(make("link", { rel: "stylesheet", href: new URL("uplot.css", HERE).href }));
      drawing ??= loaded("uplot.js").then(() => loaded("charts.js"));
      try {
        await drawing;
        end = window.pacelinePlot(figure, number, read, keep, make);
        button.setAttribute("aria-pressed", "true");
        button.disabled = false;
      } catch { button.textContent = "Zoom: uplot.js or charts.js is not beside site.js"; }
    };
    button.addEventListener("click", () => {
      if (!end) return open();
      end = end();
      button.setAttribute("aria-pressed", "false");
    });
    figure.querySelector("figcaption").append(" ", button);
    if (read().get(`c${number}`)) open();
  };

  // Papers of the ledger, chosen by words, family, verdict, tier, premises and what would settle their claims.
  const ledger = place => {
    const papers = [...document.querySelectorAll("[data-verdict]")];
    const said = make("span", { className: "muted", role: "status" });
    const input = make("input", { type: "search", value: read().get("words") ?? "" });
    const named = { premise: "premises", settled: "what would settle it" };
    const values = (paper, kind) => (paper.dataset[kind] ?? "").split("|").filter(Boolean);
    const lists = ["family", "verdict", "tier", "premise", "settled"].map(kind => {
      const select = make("select", {}, new Option("all", ""),
        ...[...new Set(papers.flatMap(p => values(p, kind)))].sort().map(value => new Option(value, value)));
      select.value = read().get(kind) ?? "";
      if (select.selectedIndex < 0) select.selectedIndex = 0;
      select.addEventListener("change", () => { keep(kind, select.value); show(); });
      return [kind, select];
    });
    const show = () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let count = 0;
      for (const paper of papers) {
        const text = words.length ? (paper.id + " " + paper.textContent).toLowerCase() : "";
        const fits = lists.every(([kind, select]) => !select.value || values(paper, kind).includes(select.value)) && words.every(w => text.includes(w));
        paper.hidden = !fits;
        count += fits;
      }
      for (const paper of papers) if (paper.tagName === "DETAILS") paper.open = !paper.hidden && (count <= 3 || paper.id === location.hash.slice(1));
      const narrowed = count < papers.length;
      said.textContent = narrowed ? `${count} of ${papers.length}` : "";
      for (const part of document.querySelectorAll("details:has([data-verdict]), section:has([data-verdict])")) {
        part.hidden = ![...part.querySelectorAll("[data-verdict]")].some(p => !p.hidden);
        if (narrowed && part.tagName === "DETAILS") part.open = true;
      }
    };
    input.addEventListener("input", () => { keep("words", input.value.trim()); show(); });
    place.className = "tools";
    place.append(make("label", {}, "Filter papers ", input), ...lists.map(([kind, select]) => make("label", {}, (named[kind] ?? kind) + " ", select)), said);
    show();
  };

  // What an address names is opened with all that it lies in.
  const reveal = () => {
    const named = location.hash.includes("=") ? null : document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let part = named; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
    named?.scrollIntoView();
  };

  searcher();
  switcher();
  document.querySelectorAll("#paper-filter").forEach(ledger);
  document.querySelectorAll("figure[data-plot]").forEach(zoomable);
  for (const figure of document.querySelectorAll("figure:has(svg.chart)")) figure.querySelector("figcaption").append(" ", ...savers(["SVG"], () => figure));
  document.querySelectorAll(".choice").forEach(chooser);
  document.querySelectorAll("[data-two]").forEach(narrowed);
  document.querySelectorAll("[data-narrow]").forEach(narrowing);
  document.querySelectorAll(".scroll:not(.doc .scroll, [data-two] .scroll) > table").forEach(equip);
  addEventListener("hashchange", reveal);
  addEventListener("hashchange", () => { if (location.hash.includes("=")) location.reload(); });
  reveal();
})();
