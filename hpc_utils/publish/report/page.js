"use strict";
const all = (selector, root = document) => [...root.querySelectorAll(selector)];

document.getElementById("contents").open = innerWidth > 960;
document.getElementById("show-code").addEventListener("change", (event) => {
  for (const cell of all("details.code")) cell.open = event.target.checked;
});

// Figures open large.
const zoom = document.getElementById("zoom");
zoom.addEventListener("click", () => zoom.close());
for (const button of all("button.figure")) {
  button.addEventListener("click", () => {
    const { src, alt } = button.firstElementChild;
    Object.assign(zoom.querySelector("img"), { src, alt });
    zoom.setAttribute("aria-label", alt);
    zoom.showModal();
  });
}

// A link to the runs behind a table or figure shows these alone; any other address shows all.
const rows = all("#runs tbody tr");
const show = (places, name) => {
  rows.forEach((row, place) => { row.hidden = places !== null && !places.has(place); });
  const behind = document.getElementById("behind");
  if (behind) behind.textContent = name ? `The runs behind ${name}` : "";
};
document.addEventListener("click", (event) => {
  const link = event.target.closest('a[href^="#"]');
  if (!link) return;
  const places = link.dataset.runs ? new Set(link.dataset.runs.split(",").map(Number)) : null;
  show(places, link.dataset.name);
});
addEventListener("hashchange", () => {
  if (document.getElementById(decodeURIComponent(location.hash.slice(1)))?.hidden) show(null);
});
