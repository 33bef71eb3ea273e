"use strict";
// Looking things up: rows that fit, what else is known of a run, and links into the tables. The state is in the address.
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const embedded = document.getElementById("evidence");
  const evidence = embedded ? JSON.parse(embedded.textContent) : { facts: [], rests: {} };
  const runs = all("#runs tbody > tr");
  const place = new Map(runs.map((row, number) => [row, number]));

  // "0-5,7" are the places 0 to 5 and 7.
  const spans = (text) => (text ? text.split(",").map((span) => span.split("-").map(Number)) : []);
  const within = (text, number) => spans(text).some(([first, last = first]) => first <= number && number <= last);
  const fact = ([, , values, which], number) => (which.length ? values[which[number]] : values[0]);
  const has = (word, number) => {
    const [name, value] = [word.slice(0, word.indexOf("=")), word.slice(word.indexOf("=") + 1)];
    return evidence.facts.some((one) => one[1].toLowerCase() === name && fact(one, number)?.toLowerCase() === value);
  };

  const KINDS = { values: "number", figures: "figure", tables: "table" };
  const address = (part, state) => {
    const said = new URLSearchParams(Object.entries(state).filter(([, value]) => value)).toString();
    return `#${part}${said && "?"}${said}`;
  };

  class Lookup {
    constructor(part) {
      this.part = part;
      this.field = part.querySelector("input[type=search]");
      this.found = part.querySelector(".found");
      this.reset = part.querySelector(".all");
      this.rows = all("tbody > tr:not(.group)", part);
      this.texts = this.rows.map((row) => row.textContent.toLowerCase());
      this.rests = ["", ""]; // the kind and name of what the runs shown are behind
      part.querySelector(".finder").hidden = !this.rows.length;
      this.field.addEventListener("input", () => this.show(true));
      this.field.addEventListener("keydown", (event) => {
        if (event.key === "Enter") this.rows.find((row) => !row.hidden)?.querySelector("button, a")?.focus();
        if (event.key === "Escape" && this.field.value) [this.field.value] = [""], this.show(true);
      });
      this.reset.addEventListener("click", () => (this.clear(), this.show(true), this.field.focus()));
      this.show();
    }

    clear() {
      this.field.value = "";
      this.rests = ["", ""];
    }

    show(remember = false) {
      const words = this.field.value.toLowerCase().split(/\s+/).filter(Boolean);
      const [kind, name] = this.rests;
      const behind = kind && (evidence.rests[kind]?.[name] ?? "");
      let count = 0;
      this.rows.forEach((row, number) => {
        const fits = words.every(
          (word) => this.texts[number].includes(word) || (word.indexOf("=") > 0 && place.has(row) && has(word, number)),
        );
        row.hidden = !fits || (kind !== "" && !within(behind, number));
        count += !row.hidden;
        if (row.hidden) close(row);
      });
      for (const body of all("tbody", this.part)) body.hidden = !body.querySelector("tr:not(.group, .more, [hidden])");
      const whole = count === this.rows.length ? `${count}` : `${count} of ${this.rows.length}`;
      this.found.textContent = `${whole} ${this.part.id}${kind && ` behind the ${KINDS[kind]} ${name}`}`;
      this.reset.hidden = !words.length && !kind;
      if (!remember) return;
      const state = { find: this.field.value.trim(), [KINDS[kind]]: name };
      history.replaceState(null, "", address(this.part.id, state));
    }
  }

  // What else is known of a run opens below its row.
  const element = (name, text = "", attributes = {}) => {
    const made = Object.assign(document.createElement(name), attributes);
    if (text) made.textContent = text;
    return made;
  };
  const close = (row) => {
    if (!row.nextElementSibling?.matches(".more")) return;
    row.nextElementSibling.remove();
    row.querySelector(".toggle").ariaExpanded = "false";
  };
  const open = (row) => {
    if (row.nextElementSibling?.matches(".more")) return;
    const number = place.get(row);
    const told = element("div", "", { className: "told" });
    const resting = Object.keys(KINDS).flatMap((kind) =>
      Object.entries(evidence.rests[kind] ?? {})
        .filter(([, own]) => within(own, number))
        .map(([name]) => element("a", name, { href: `#${KINDS[kind]}-${encodeURIComponent(name)}` })),
    );
    told.append(element("h3", resting.length ? "Numbers, figures and tables that rest on it" : "No number rests on it"));
    if (resting.length) told.append(element("p"));
    resting.forEach((link, index) => told.lastChild.append(index ? ", " : "", link));
    let list, group;
    for (const one of evidence.facts) {
      const value = fact(one, number);
      if (value === undefined) continue;
      if (one[0] !== group) told.append(element("h3", `${(group = one[0])[0].toUpperCase()}${group.slice(1)}`), (list = element("dl")));
      const pair = element("div", "", { className: one[3].length ? "own" : "", title: one[3].length ? "" : "the same in all runs" });
      pair.append(element("dt", one[1]), element("dd", value));
      list.append(pair);
    }
    const cell = element("td", "", { colSpan: row.cells.length });
    cell.append(told);
    const more = element("tr", "", { className: "more" });
    more.append(cell);
    row.after(more);
    row.querySelector(".toggle").ariaExpanded = "true";
  };
  for (const row of runs) {
    const toggle = element("button", "", { type: "button", className: "toggle", ariaExpanded: "false" });
    toggle.ariaLabel = `More about ${row.cells[0].textContent}`;
    row.cells[0].prepend(toggle);
  }
  document.getElementById("runs")?.addEventListener("click", (event) => {
    const row = event.target.closest(".toggle")?.closest("tr");
    if (row?.nextElementSibling?.matches(".more")) close(row);
    else if (row) open(row);
  });

  // Links that only a script can follow get their address here.
  for (const link of all("a[data-rests]")) {
    link.href = address("runs", { [KINDS[link.dataset.rests]]: link.dataset.name });
  }
  for (const link of all("a[data-find]")) link.href = address("runs", { find: link.dataset.find });

  const lookups = new Map(all(".part").filter((part) => part.querySelector(".finder")).map((part) => [part.id, new Lookup(part)]));
  const follow = () => {
    const [target, said] = location.hash.slice(1).split(/\?(.*)/s);
    const part = lookups.get(target);
    if (part && said) {
      const state = new URLSearchParams(said);
      const kind = target === "runs" ? Object.keys(KINDS).find((kind) => state.get(KINDS[kind])) : undefined;
      part.field.value = state.get("find") ?? "";
      part.rests = kind ? [kind, state.get(KINDS[kind])] : ["", ""];
      part.show();
      part.part.scrollIntoView();
      return;
    }
    let row;
    try {
      row = document.getElementById(decodeURIComponent(target))?.closest(".part tr");
    } catch {} // no address of ours
    if (!row) return;
    const own = lookups.get(row.closest(".part").id);
    if (row.hidden) own.clear(), own.show();
    if (place.has(row)) open(row);
    row.scrollIntoView({ block: "center" });
    row.querySelector("button, a")?.focus({ preventScroll: true });
  };
  addEventListener("hashchange", follow);
  follow();
})();
