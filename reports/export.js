// Writes a table or a chart to a file as it is seen: the rows and columns that are shown, in their order and units.
"use strict";
window.pacelineExport = (() => {
  const TEX = {
    "\\": "\\textbackslash{}", "{": "\\{", "}": "\\}", $: "\\$", "&": "\\&", "#": "\\#", "%": "\\%", _: "\\_",
    "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "<": "$<$", ">": "$>$", "|": "$|$", '"': "''", "`": "\\textasciigrave{}",
    "×": "$\\times$", "±": "$\\pm$", "·": "$\\cdot$", "−": "$-$", "–": "--", "—": "---", "…": "\\ldots{}", "≈": "$\\approx$",
    "≤": "$\\leq$", "≥": "$\\geq$", "µ": "$\\mu$", "μ": "$\\mu$", "∞": "$\\infty$", "√": "$\\surd$", "°": "$^{\\circ}$",
    "’": "'", "‘": "`", "“": "``", "”": "''", "\u00a0": "~", "\u202f": "~",
  };
  const DRAWN = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "opacity", "font-family", "font-size", "font-weight", "text-anchor"];

  const save = (name, type, text, make) => {
    const href = URL.createObjectURL(new Blob([text], { type }));
    make("a", { href, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(href), 1000);
  };

  const textOf = cell => cell.closest("thead") ? cell.textContent.trim()
    : [...cell.childNodes].filter(n => !(n.matches && n.matches("svg, input"))).map(n => n.textContent).join(" ").replace(/\s+/g, " ").trim();

  // Return the texts of the rows that are seen; a cell that stands for several rows or columns is in the first of each row.
  const seen = table => {
    const rows = [];
    const above = new Map(); // column → the cell that reaches down into it, and over how many more rows
    for (const row of table.rows) {
      if (row.hidden || row.parentElement.hidden) continue;
      const texts = [];
      let column = 0;
      const reach = () => {
        for (let over = above.get(column); over?.left; over = above.get(++column)) {
          over.left -= 1;
          if (!over.hidden) texts.push(over.text);
        }
      };
      if (row === row.parentElement.rows[0]) above.clear();
      for (const cell of row.cells) {
        reach();
        const text = textOf(cell);
        if (cell.rowSpan > 1) above.set(column, { text, hidden: cell.hidden, left: cell.rowSpan - 1 });
        if (!cell.hidden) texts.push(text, ...Array(cell.colSpan - 1).fill(""));
        column += cell.colSpan;
      }
      reach();
      rows.push(texts);
    }
    return rows;
  };

  // A text that a spreadsheet would take for a formula gets an apostrophe in front.
  const csv = rows => rows.map(row => row.map(text => {
    const inert = /^[=+\-@\t\r]/.test(text) && !/^-?\d+(\.\d+)?(e[-+]?\d+)?$/.test(text) ? "'" + text : text;
    return /[",\r\n]/.test(inert) ? '"' + inert.replaceAll('"', '""') + '"' : inert;
  }).join(",") + "\r\n").join("");

  // Two hyphens would become a dash, and what the usual fonts lack is written as its number.
  const letter = char => TEX[char] ?? (/[ -~]/.test(char) ? char : "U+" + char.codePointAt(0).toString(16).toUpperCase().padStart(4, "0"));
  const tex = text => text.split(/-(?=-)/).map(part => [...part].map(letter).join("")).join("-{}");

  const latex = (rows, title) => {
    const line = row => row.map(text => /^[[*]/.test(text) ? `{${tex(text)}}` : tex(text)).join(" & ") + " \\\\";
    const [head, ...body] = rows;
    return ["% needs \\usepackage{booktabs}", "\\begin{table}[t]", "\\centering", `\\caption{${tex(title)}}`,
      `\\begin{tabular}{${"l".repeat(head.length)}}`, "\\toprule", line(head), "\\midrule", ...body.map(line),
      "\\bottomrule", "\\end{tabular}", "\\end{table}", ""].join("\n");
  };

  // A chart as a file has the colours that it has on the page now, without the page's style sheet.
  const drawing = chart => {
    const copy = chart.cloneNode(true);
    const parts = [...chart.querySelectorAll("*")];
    [...copy.querySelectorAll("*")].forEach((part, i) => {
      const style = getComputedStyle(parts[i]);
      if (part.namespaceURI.endsWith("svg")) for (const name of DRAWN) part.style.setProperty(name, style.getPropertyValue(name));
      part.removeAttribute("class");
    });
    const { width, height } = chart.viewBox.baseVal;
    copy.setAttribute("width", width);
    copy.setAttribute("height", height);
    copy.removeAttribute("class");
    copy.style.setProperty("background", getComputedStyle(document.body).backgroundColor);
    return new XMLSerializer().serializeToString(copy) + "\n";
  };

  // Write what is seen of a table or a figure; kind is what the button says.
  return (kind, subject, make) => {
    const own = (subject.querySelector("caption, figcaption")?.firstChild?.textContent ?? "").trim();
    const page = document.querySelector("h1").textContent.trim();
    const title = own && own !== page ? `${page}: ${own}` : page;
    const name = title.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "").slice(0, 80);
    if (kind === "SVG") return save(`${name}.svg`, "image/svg+xml", drawing(subject.querySelector("svg.chart")), make);
    const rows = seen(subject);
    if (kind === "CSV") return save(`${name}.csv`, "text/csv;charset=utf-8", csv(rows), make);
    return save(`${name}.tex`, "application/x-tex", latex(rows, title), make);
  };
})();
