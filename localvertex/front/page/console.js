// The frame: the section that is shown, its refresh, and the keyboard. A hidden page sends no requests.
import { calls, buckets, models, runs, schedules } from "/console/views.js";
import { jobs } from "/console/jobs.js";
import { count, fill, get, h } from "/console/dom.js";

const SECTIONS = { jobs: ["Jobs", jobs], runs: ["Runs", runs], buckets: ["Buckets", buckets], schedules: ["Schedules", schedules], models: ["Models", models], calls: ["Calls", calls] };
const SOON = 1000;
const LATER = 3000;
const FILES_EVERY = 5;  // trainers write into buckets and logs without a change that the pulse counts

const [content, list, detail, trouble] = ["content", "list", "detail", "trouble"].map((id) => document.getElementById(id));
let [about, seen, timer, turn, beats] = [null, "", 0, 0, 0];

function route() {
  const [, section, ...names] = location.hash.split("/").map(decodeURIComponent);
  return { section: SECTIONS[section] ? section : "jobs", names: names.filter(Boolean) };
}

async function show() {
  const { section, names } = route();
  const own = ++turn;
  content.dataset.section = section;
  content.classList.toggle("chosen", names.length > 0);
  const found = await SECTIONS[section][1](names, about, () => show().catch(failed));
  if (own !== turn) return;  // another section was chosen meanwhile
  fill(list, found.list ?? found.whole);
  fill(detail, found.detail ?? []);
}

function frame() {
  const { section } = route();
  const { running, waiting, used, slots } = about.queue ?? {};
  document.title = about.project ?? `${running ? `${running} running · ` : ""}local Vertex`;
  document.getElementById("title").textContent = about.project ? "Vertex AI" : "local Vertex";
  const place = about.project ? `${about.project} · ${about.region} · function ${about.function} · read only` : `${about.url} · ${running} running, ${waiting} waiting, ${used} of ${slots} slots`;
  document.getElementById("server").textContent = `${place} · vertexrig ${about.version}`;
  const shown = Object.entries(SECTIONS).filter(([name]) => name !== "calls" || !about.project);
  fill(document.getElementById("sections"), shown.map(([name, [title]]) => ({
    key: name, sign: [section === name, name === "calls" && about.missing],
    make: () => h("a", { href: `#/${name}`, "data-k": name, "aria-current": section === name ? "page" : undefined }, title,
      name === "calls" && about.missing ? h("span", { class: "badge" }, `${about.missing} not served`) : null),
  })));
}

function failed(error) {
  trouble.hidden = false;
  trouble.textContent = error instanceof TypeError
    ? `The server does not answer. Start it with \`vertexrig ${about?.project ? "console" : "local up"}\`; this page then continues by itself.`
    : `This section cannot be shown: ${error.message}`;
}

async function beat(force = false) {
  clearTimeout(timer);
  if (document.hidden) return;
  try {
    about = await get("/console/v1/pulse");
    frame();
    const sign = JSON.stringify([about.pid, about.changes, route().section === "calls" && [about.calls, about.refused]]);
    beats += 1;
    if (force || sign !== seen || beats % FILES_EVERY === 0) {
      await show();
      seen = sign;
    }
    trouble.hidden = true;
  } catch (error) {
    failed(error);
  }
  clearTimeout(timer);
  timer = setTimeout(beat, about?.queue?.running ? SOON : LATER);
}

// Arrow keys go from one link or button to the next in what has `data-arrows`.
function arrows(event) {
  const group = event.target.closest?.("[data-arrows]");
  const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
  const links = group ? [...group.querySelectorAll("a, button")] : [];
  const at = links.indexOf(event.target);
  if (at < 0 || !(step || event.key === "Home" || event.key === "End")) return;
  const next = step ? at + step : event.key === "Home" ? 0 : links.length - 1;
  event.preventDefault();
  links[Math.min(links.length - 1, Math.max(0, next))].focus();
}

document.addEventListener("keydown", (event) => {
  arrows(event);
  if (event.key === "Escape" && route().names.length && route().section === "jobs") {
    const name = route().names.join("/");
    location.hash = "#/jobs";
    list.querySelector(`[data-k="${CSS.escape(name)}"]`)?.focus();
  }
});
document.getElementById("skip").addEventListener("click", (event) => { event.preventDefault(); content.focus(); });
document.addEventListener("visibilitychange", () => beat(true));
window.addEventListener("hashchange", () => { window.scrollTo(0, 0); beat(true); });
setInterval(() => { if (!document.hidden) document.querySelectorAll("[data-since]").forEach(count); }, 1000);
beat(true);
