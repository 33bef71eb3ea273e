"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  // What needs this script is hidden without it; in print every cell is as folded as on the screen.
  document.documentElement.classList.add("js");
  for (const control of all(".switch, #menu")) control.hidden = false;

  const code = document.getElementById("show-code");
  code.addEventListener("change", () => {
    for (const cell of all("details.code")) cell.open = code.checked;
  });

  const menu = document.getElementById("menu");
  const unfold = (open) => menu.setAttribute("aria-expanded", String(open));
  menu.addEventListener("click", () => unfold(menu.getAttribute("aria-expanded") !== "true"));
  document.getElementById("contents").addEventListener("click", (event) => event.target.closest("a") && unfold(false));
  document.addEventListener("keydown", (event) => event.key === "Escape" && unfold(false));

  // The navigation follows the reader.
  const nav = document.querySelector("nav");
  const links = new Map(all("#contents a").map((link) => [link.getAttribute("href").slice(1), link]));
  const places = all("main [id]").filter((place) => links.has(place.id));
  let current;
  const follow = () => {
    const place = places.findLast((place) => place.getBoundingClientRect().top < 120);
    const link = place && links.get(place.id);
    if (link === current) return;
    current?.removeAttribute("aria-current");
    current = link;
    current?.setAttribute("aria-current", "true");
    const { top, bottom } = current?.getBoundingClientRect() ?? {};
    if (top < 0 || bottom > innerHeight) nav.scrollTop += top - innerHeight / 2;
  };
  document.addEventListener("scroll", () => requestAnimationFrame(follow), { passive: true });
  follow();

  // Boxes that scroll can be scrolled by keyboard.
  const reach = () => {
    for (const box of all(".box:not(.tall), pre")) {
      if (box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    }
  };
  addEventListener("resize", reach);
  reach();

  // Figures open large; <dialog> brings Escape, the focus trap and the way back.
  const zoom = document.createElement("dialog");
  zoom.id = "zoom";
  zoom.addEventListener("click", () => zoom.close());
  document.body.append(zoom);
  const enlarge = (image) => {
    const large = image.cloneNode();
    const [width, height] = [image.naturalWidth || 800, image.naturalHeight || 600];
    const scale = Math.min((innerWidth * 0.96 - 32) / width, (innerHeight * 0.94 - 32) / height, 2.5);
    large.width = width * scale;
    large.height = height * scale;
    const close = document.createElement("button");
    close.type = "button";
    close.textContent = "Close";
    zoom.setAttribute("aria-label", image.alt);
    zoom.replaceChildren(large, close);
    zoom.showModal();
  };
  for (const button of all("button.figure")) button.addEventListener("click", () => enlarge(button.firstElementChild));

  // Tables sort by a click on a header: up, down, and back to the notebook's order.
  const number = (text) => (/\d|inf/i.test(text) ? Number(text.replace(/[,%\s]/g, "").replace(/inf$/i, "Infinity")) : NaN);
  const key = (cell) => ({ text: cell.dataset.sort ?? cell.textContent.trim(), unit: cell.dataset.unit ?? "" });
  const compare = (first, second) => {
    if (first.unit !== second.unit) return first.unit.localeCompare(second.unit);
    const [a, b, x, y] = [first.text, second.text, number(first.text), number(second.text)];
    if (!isNaN(x) && !isNaN(y)) return x - y;
    return a.localeCompare(b, "en", { numeric: true });
  };
  const blank = ({ text }) => ["", "NaN", "nan", "NaT", "None", "<NA>", "..."].includes(text);
  for (const header of all("tr.sorts > th")) {
    const table = header.closest("table");
    const column = header.cellIndex;
    const bodies = [...table.tBodies].map((body) => [body, [...body.rows].filter((row) => !row.matches(".group"))]);
    const button = document.createElement("button");
    button.type = "button";
    if (!header.textContent.trim()) button.setAttribute("aria-label", "row");
    button.append(...header.childNodes);
    header.append(button);
    header.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => {
      const next = { none: "ascending", ascending: "descending", descending: "none" }[header.getAttribute("aria-sort")];
      for (const other of all("[aria-sort]", table)) other.setAttribute("aria-sort", "none");
      header.setAttribute("aria-sort", next);
      const sign = next === "descending" ? -1 : 1;
      const order = ([a], [b]) => blank(a) - blank(b) || sign * compare(a, b);
      for (const [body, original] of bodies) {
        const sorted = original.map((row) => [key(row.cells[column]), row]);
        if (next !== "none") sorted.sort(order);
        const below = (row) => (row.nextElementSibling?.matches(".more") ? [row.nextElementSibling] : []);
        body.append(...sorted.flatMap(([, row]) => [row, ...below(row)]));
      }
    });
  }
})();
