// The report's charts, theme and tables. Nothing here loads anything.
(() => {
  "use strict";
  const page = JSON.parse(document.getElementById("report-data").textContent);
  const root = document.documentElement;
  const places = new Map([...document.querySelectorAll("[data-chart]")].map((place) => [place.dataset.chart, place]));
  for (const chart of page.sections.flatMap((section) => section.charts)) shared.charts.show(places.get(chart.id), chart, page.data);
  document.getElementById("theme")?.addEventListener("click", () => {
    root.dataset.theme = shared.charts.isDark() ? "light" : "dark";
    shared.charts.again();
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
