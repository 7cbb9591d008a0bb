// Draws the charts when they come into view, in the colours of the reader's scheme. Nothing here loads anything.
(() => {
  "use strict";
  const page = JSON.parse(document.getElementById("report-data").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
  const views = new Map();

  function config() {
    const night = isDark();
    const text = night ? "#c9d0d8" : "#444c56";
    const line = night ? "#2c333c" : "#e1e5ea";
    const ground = getComputedStyle(root).getPropertyValue("--ground").trim();
    return {
      background: null,
      font: getComputedStyle(document.body).fontFamily,
      view: { stroke: null },
      axis: { labelColor: text, titleColor: text, gridColor: line, domainColor: line, tickColor: line, labelFontSize: 11, titleFontSize: 11, titleFontWeight: 500 },
      legend: { labelColor: text, titleColor: text, labelFontSize: 11, titleFontSize: 11, titleFontWeight: 500 },
      text: { color: text },
      rule: { color: text },
      style: { halo: { color: ground, stroke: ground, strokeWidth: 4, strokeJoin: "round", opacity: 0.85 } },
      range: { ramp: night ? ["#2b3a55", "#4f7fd0", "#cfe2ff"] : ["#d3dded", "#5b8bdb", "#0b2a66"] },
    };
  }

  async function draw(place) {
    if (place.dataset.drawn) return;
    place.dataset.drawn = "drawing";
    const chart = page.charts[place.dataset.chart];
    const spec = { ...chart.spec, datasets: Object.fromEntries(chart.data.map((name) => [name, page.data[name]])) };
    try {
      const renderer = page.rows > 300 ? "canvas" : "svg";
      const drawn = await window.vegaEmbed(place, spec, {
        actions: false, ast: true, renderer, config: config(), tooltip: { theme: isDark() ? "dark" : "light" },
      });
      views.set(place, drawn);
      place.dataset.drawn = "yes";
    } catch (error) {
      place.dataset.drawn = "failed";
      place.textContent = `This chart could not be drawn: ${error.message}`;
      place.classList.add("failed");
      console.error(error);
    }
  }

  const places = [...document.querySelectorAll("[data-chart]")];
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting) { seen.unobserve(entry.target); draw(entry.target); }
    }
  }, { rootMargin: "300px" });
  places.forEach((place) => seen.observe(place));
  window.addEventListener("beforeprint", () => places.forEach(draw));

  function again() {
    for (const [place, drawn] of views) { drawn.finalize(); delete place.dataset.drawn; }
    const known = [...views.keys()];
    views.clear();
    known.forEach(draw);
  }
  dark.addEventListener("change", again);
  document.getElementById("theme")?.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    again();
  });

  for (const button of document.querySelectorAll("[data-copy]")) button.addEventListener("click", () => shared.copy(button));

  for (const button of document.querySelectorAll("thead button")) {
    button.addEventListener("click", () => {
      const head = button.closest("th");
      const up = head.getAttribute("aria-sort") !== "ascending";
      for (const other of head.parentElement.children) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const body = head.closest("table").tBodies[0];
      const at = head.cellIndex;
      const value = (row) => {
        const cell = row.cells[at].textContent;
        const number = Number.parseFloat(cell);
        return cell === "" ? null : Number.isNaN(number) ? cell : number;
      };
      body.append(...shared.ordered([...body.rows], value, !up));
    });
  }
})();
