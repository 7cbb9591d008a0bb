// Elements, requests and figures. Every text of the server becomes a text node: nothing here parses markup.

// What turns text around, or is no text at all, is shown as a replacement.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;

export function h(tag, props = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (typeof child === "string" ? child.replace(UNSEEN, "\ufffd") : child)));
  return made;
}

// While the pointer is down nothing is made again or moved: a press on what has been replaced meanwhile would be no click.
let pressed = false;
const held = new Map();  // by element: the parts to show when the pointer is up

function released() {
  pressed = false;
  for (const [target, parts] of held) fill(target, parts);
  held.clear();
}

addEventListener("pointerdown", () => { pressed = true; }, true);
// The click comes after pointerup, in the same task. A release outside the window is seen by the next move.
for (const name of ["pointerup", "pointercancel"]) addEventListener(name, () => setTimeout(released), true);
addEventListener("pointermove", (event) => { if (pressed && !event.buttons) released(); }, true);

// Shows parts in an element, in their order. A part is {key, sign, make}: it is made again when its sign has changed, and
// the focus and the scrolled tables in it stay where they were.
export function fill(target, parts) {
  if (pressed) {
    held.set(target, parts);
    return;
  }
  const old = new Map([...target.children].map((child) => [child.dataset.part, child]));
  const kept = parts.filter(Boolean).map(({ key, sign, make }) => {
    const text = JSON.stringify(sign);
    const before = old.get(key);
    if (before && before.partSign === text) return before;
    const made = make();
    made.dataset.part = key;
    made.partSign = text;
    return made;
  });
  if (kept.length === target.children.length && kept.every((node, at) => node === target.children[at])) return;
  const focus = target.contains(document.activeElement) ? document.activeElement.dataset.k : undefined;
  const scrolled = new Map([...target.querySelectorAll("[data-s]")].map((one) => [one.dataset.s, [one.scrollTop, one.scrollLeft]]));
  // What stays is not moved, and keeps a selection of text.
  for (const child of [...target.children]) if (!kept.includes(child)) child.remove();
  kept.forEach((node, at) => { if (target.children[at] !== node) target.insertBefore(node, target.children[at] ?? null); });
  for (const one of target.querySelectorAll("[data-s]")) {
    const [top, left] = scrolled.get(one.dataset.s) ?? [0, 0];
    if (top || left) one.scrollTo({ top, left, behavior: "instant" });
  }
  if (focus !== undefined) target.querySelector(`[data-k="${CSS.escape(focus)}"]`)?.focus({ preventScroll: true });
}

const OWN = { "x-vertexrig-console": "1" };

async function answer(response) {
  const data = await response.json();
  if (!response.ok) throw new Error(data.error?.message ?? `HTTP ${response.status}`);
  return data;
}

export const get = async (path) => answer(await fetch(path, { headers: OWN }));

export const post = async (path, body) =>
  answer(await fetch(path, { method: "POST", headers: { ...OWN, "content-type": "application/json" }, body: JSON.stringify(body) }));

// A collection in all locations, the first page of each.
export async function everywhere(prefix, locations, collection, size) {
  const pages = await Promise.all(locations.map((location) => get(`${prefix}/v1/${location}/${collection}?pageSize=${size}`)));
  return pages.flatMap((page) => page[collection] ?? []);
}

export const last = (name) => name.slice(name.lastIndexOf("/") + 1);
export const region = (name) => name.split("/")[3] ?? "";
export const word = (state) => (state ?? "").replace(/^(JOB|PIPELINE)_STATE_/, "").replaceAll("_", " ").toLowerCase();
export const isOver = (state) => ["succeeded", "failed", "cancelled", "expired", "completed", "partially succeeded"].includes(word(state));

// Local date and time; the Swedish format is 2026-01-31 12:00:00.
export const clock = (text) => (text ? new Date(text).toLocaleString("sv-SE") : "");

export function length(seconds) {
  if (!Number.isFinite(seconds)) return "";
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 120) return `${whole} s`;
  if (whole < 7200) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

// The time between two moments; without an end the time until now, which is updated.
export function span(start, end) {
  if (!start) return "";
  const seconds = (new Date(end) - new Date(start)) / 1000;
  if (end) return by(seconds, length(seconds));
  const made = h("span", { "data-since": start });
  count(made);
  return made;
}

export const count = (target) => { target.textContent = length((Date.now() - new Date(target.dataset.since)) / 1000); };

export function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB"];
  let value = Number(bytes) || 0;
  let at = 0;
  while (value >= 1024 && at < units.length - 1) { value /= 1024; at += 1; }
  return by(Number(bytes) || 0, `${at ? value.toFixed(1) : value} ${units[at]}`);
}

export const state = (text) => h("span", { class: "state", "data-state": word(text) }, word(text) || "unknown");

export const link = (section, name, ...shown) => h("a", { href: address(section, name), "data-k": `${section}/${name}` }, ...shown);

export const address = (section, name) => `#/${section}/${name.split("/").map(encodeURIComponent).join("/")}`;

// A cell that sorts by another value than its text.
const by = (value, shown) => h("span", { "data-by": value }, shown);

export const moment = (text) => (text ? by(new Date(text).getTime(), clock(text)) : "");

// What a column sorts by: numbers as such; an empty cell has nothing.
function valueOf(cell) {
  const since = cell.querySelector("[data-since]")?.dataset.since;
  if (since) return (Date.now() - new Date(since)) / 1000;
  const text = cell.querySelector("[data-by]")?.dataset.by ?? cell.textContent.trim();
  return text === "" ? null : Number.isFinite(Number(text)) ? Number(text) : text;
}

const sorted = new Map();  // by table: the name of the column, and whether its largest value is first

// A table of cells, sorted by the column whose head was pressed: upwards, downwards, then as it was. On a narrow screen each
// row becomes a block, with the names of the columns in it.
export function table(key, heads, rows, caption) {
  const made = rows.map((cells) => h("tr", { class: cells.class }, cells.map((cell, at) => h("td", { "data-label": heads[at] }, cell))));
  const body = h("tbody");
  const columns = heads.map((head, at) => h("th", { scope: "col" }, h("button", { type: "button", "data-k": `sort ${key} ${at}`, onclick: () => press(head) }, head)));
  function arrange() {
    const { head, down } = sorted.get(key) ?? {};
    columns.forEach((column, at) => {
      if (heads[at] === head) column.setAttribute("aria-sort", down ? "descending" : "ascending");
      else column.removeAttribute("aria-sort");
    });
    const at = heads.indexOf(head);
    body.replaceChildren(...(at < 0 ? made : shared.ordered(made, (row) => valueOf(row.children[at]), down)));
  }
  function press(head) {
    const before = sorted.get(key);
    if (before?.head !== head) sorted.set(key, { head, down: false });
    else if (!before.down) sorted.set(key, { head, down: true });
    else sorted.delete(key);
    arrange();
  }
  arrange();
  return h("div", { class: "table", "data-s": key, tabindex: "0", role: "region", "aria-label": caption },
    h("table", {}, h("thead", {}, h("tr", {}, columns)), body));
}

// A note that a list does not show everything, or ""; -1 is a number that is not known.
export const left = (shown, all, what, which = "newest") => (all < 0 ? `At most ${shown.toLocaleString()} ${what} are shown.` : all > shown ? `The ${which} ${shown.toLocaleString()} of ${all.toLocaleString()} ${what} are shown.` : "");

export const tile = (name, value, more = "") => h("div", { class: "tile" }, h("span", {}, name), h("b", {}, value), h("i", {}, more));

export function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== "" && value !== undefined && value !== null);
  return h("dl", {}, shown.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

// Commands to paste into a shell.
export function commands(lines, note = "") {
  const button = h("button", { type: "button", "data-k": "copy", onclick: () => shared.copy(button) }, "Copy");
  return h("div", { class: "commands" }, note && h("p", { class: "soft" }, note), h("pre", {}, lines.join("\n")), button);
}

export const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`);
