// Draws Vega-Lite charts when they come into view, in the colours of the reader's scheme, for the report and the console.
(() => {
  "use strict";
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
  const wanted = new Map();  // by place: its chart, with the data
  const views = new Map();  // by place: what is drawn there
  const SVG_ROWS = 600;  // above that a canvas is faster
  let library = async () => window.vegaEmbed;

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
      range: { ramp: night ? ["#5470a3", "#6f9fe8", "#dbe8ff"] : ["#9db3d9", "#4c7fd0", "#0b2a66"] },
    };
  }

  async function draw(place) {
    if (["drawing", "yes"].includes(place.dataset.drawn)) return;
    place.dataset.drawn = "drawing";
    const { spec, data } = wanted.get(place);
    const rows = Math.max(...Object.values(data).map((one) => one.length));
    // beside what is there, which stays until the new chart is whole
    const made = document.createElement("div");
    made.className = "made";
    place.append(made);
    try {
      const embed = await library();
      const drawn = await embed(made, { ...spec, datasets: data }, {
        actions: false, ast: true, defaultStyle: false, renderer: rows > SVG_ROWS ? "canvas" : "svg", config: config(),
        tooltip: { theme: isDark() ? "dark" : "light", disableDefaultStyle: true },
      });
      views.get(place)?.finalize();
      views.set(place, drawn);
      place.replaceChildren(made);
      made.classList.remove("made");
      place.style.minHeight = "";
      place.dataset.drawn = "yes";
    } catch (error) {
      place.dataset.drawn = "failed";
      place.textContent = `This chart could not be drawn: ${error.message}`;
      console.error(error);
    }
  }

  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting) { seen.unobserve(entry.target); draw(entry.target); }
    }
  }, { rootMargin: "300px" });

  function again() {
    for (const place of views.keys()) { delete place.dataset.drawn; draw(place); }
  }
  dark.addEventListener("change", again);
  window.addEventListener("beforeprint", () => [...wanted.keys()].forEach(draw));

  globalThis.shared.charts = {
    again,
    isDark,
    // Where the drawing library comes from, if it is not part of the page.
    from(load) { library = load; },
    // Draws a chart in an element once it is in view; `before` is an element whose chart is shown until then.
    show(place, chart, data, before = null) {
      for (const [old, view] of views) {
        if (!old.isConnected) { view.finalize(); views.delete(old); wanted.delete(old); }
      }
      place.style.minHeight = `${(chart.spec.height ?? 200) + 40}px`;
      wanted.set(place, { spec: chart.spec, data: Object.fromEntries(chart.data.map((name) => [name, data[name]])) });
      if (before?.dataset.drawn === "yes") place.append(...before.childNodes);
      seen.observe(place);
    },
  };
})();
