// Finds pages by words in search-index.js, which site.js reads beside this file: there is no server to ask.
"use strict";
window.pacelineSearch = (() => {
  const MOST = 20, EXCERPT = 150;
  // Words of questions that tell nothing of what is asked for.
  const SMALL = new Set("a an and any are as at be by can did do does for from get here how i in is it my of on or should than that the there this to use was what when where which who why will with you".split(" "));
  const WEIGHT = { Page: 1.5, Board: 1.25, Technique: 1.25, "Technique without results": .9, Paper: 1.1, Point: 1, Metric: 1, Document: .9 };

  // Lower case, no accents, words apart by one blank, numbers joined to their unit: "All-reduce, 1 MiB" is " all reduce 1mib ".
  // Classes of all alphabets are slow, and most texts have one.
  const apart = text => /[^\x00-\x7f]/.test(text)
    ? text.normalize("NFKD").replace(/[\u0300-\u036f]/g, "").toLowerCase().replace(/[^\p{L}\p{N}.]+|\.(?!\d)/gu, " ")
    : text.toLowerCase().replace(/[^a-z0-9.]+|\.(?!\d)/g, " ");
  const UNIT = /(\d) (?=(?:[kmgt]?i?b|[kmg]bit|ns|μs|ms|gbps|ranks?)\b)/g;
  const plain = text => " " + apart(text).trim().replace(UNIT, "$1") + " ";
  const seen = new Map(); // all points of a board have one text
  const once = text => {
    if (!seen.has(text)) seen.set(text, plain(text));
    return seen.get(text);
  };

  const entries = window.pacelineIndex.map(([kind, title, href, text]) => {
    const name = plain(title);
    return { kind, title, href, text, name, joined: name.replaceAll(" ", ""), body: once(text) };
  });

  // Return what a word is worth to an entry: whole words before beginnings, titles before texts.
  const worth = word => {
    const begun = " " + word, whole = begun + " ", long = word.length > 4;
    return ({ name, joined, body }) => {
      if (name.includes(begun)) return name.includes(whole) ? 10 : 6;
      if (long && joined.includes(word)) return 5;
      const at = body.indexOf(begun);
      return at < 0 ? 0 : body.indexOf(whole, at) < 0 ? 1 : 2;
    };
  };

  const found = asked => {
    const all = plain(asked).trim().split(" ").filter(Boolean);
    const telling = [...new Set(all.filter(word => !SMALL.has(word) && (word.length > 1 || /\d/.test(word))))];
    const words = telling.length ? telling : all;
    if (!words.length) return { hits: [], whole: 0 };
    const points = words.map(word => entries.map(worth(word)));
    const rare = points.map(row => Math.log(1 + entries.length / (1 + row.reduce((n, p) => n + (p > 0), 0))));
    const names = [plain(asked), ...words.map(word => ` ${word} `)]; // what is called so, or begins so, comes first
    const hits = entries.map((entry, i) => {
      const had = points.reduce((n, row) => n + (row[i] > 0), 0);
      const sum = points.reduce((n, row, w) => n + row[i] * rare[w], 0);
      const named = names.some(name => entry.name.startsWith(name)) ? 1.5 : 1;
      return { entry, had, score: named * WEIGHT[entry.kind] * sum * Math.sqrt(had / words.length) }; // long texts have many words
    }).filter(hit => hit.had);
    hits.sort((a, b) => b.score - a.score || (a.entry.title < b.entry.title ? -1 : 1));
    return { hits: hits.map(hit => hit.entry), words, whole: hits.filter(hit => hit.had === words.length).length };
  };

  // Return the part of a text in which the first of the words stands.
  const excerpt = (text, words) => {
    if (text.length <= EXCERPT) return text;
    const low = text.toLowerCase();
    const at = words.map(word => low.search(new RegExp("\\b" + word.replace(/[^\p{L}\p{N}]/gu, ".")))).find(i => i >= 0) ?? 0;
    const begin = at < EXCERPT / 2 ? 0 : text.indexOf(" ", at - EXCERPT / 2) + 1;
    return (begin ? "… " : "") + text.slice(begin, begin + EXCERPT).replace(/\s\S*$/, "") + (begin + EXCERPT < text.length ? " …" : "");
  };

  // Show what was found in a section; root is where the site begins.
  return (asked, place, root, make) => {
    const { hits, words, whole } = found(asked);
    const rest = hits.length > MOST ? `; the best ${MOST}:` : ":";
    const some = hits.length - whole;
    const said = !hits.length ? "Nothing has these words." : !some ? `${whole} found${rest}`
      : `${whole || "None"} with all words, ${some} with some${rest}`;
    const list = make("ol", {}, ...hits.slice(0, MOST).map(entry => make("li", {},
      make("a", { href: new URL(entry.href, root).href, textContent: entry.title }),
      make("span", { className: "muted", textContent: " " + entry.kind }),
      make("p", { className: "note", textContent: excerpt(entry.text, words) }))));
    place.replaceChildren(make("p", { className: "note", role: "status", textContent: said }), list);
  };
})();
