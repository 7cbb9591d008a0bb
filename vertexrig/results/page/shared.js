// What the page of `vertexrig report` and the console of the local Vertex share: the report contains it, the console loads it.
globalThis.shared = {
  // Rows by the value of each: a number, a text, or null, which is last in both directions.
  ordered(rows, value, down) {
    const keyed = rows.map((row) => [value(row), row]);
    const order = (a, b) => {
      if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
      return typeof a === "number" ? a - b : a.localeCompare(b, undefined, { numeric: true });
    };
    keyed.sort(([a], [b]) => (a === null || b === null ? (a === null) - (b === null) : down ? order(b, a) : order(a, b)));
    return keyed.map(([, row]) => row);
  },

  // Copies the text beside a button; where the browser does not allow that, selects it.
  async copy(button) {
    const pre = button.parentElement.querySelector("pre");
    try {
      await navigator.clipboard.writeText(pre.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(pre);
      button.textContent = "Selected: press Ctrl-C";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  },
};
