// Jobs, studies, their replicas, trials and logs.
import { address, clock, commands, facts, get, h, isOver, last, left, link, moment, post, quoted, region, size, span, state, table, tile, word } from "/console/dom.js";

const KINDS = { customJobs: "custom job", hyperparameterTuningJobs: "tuning job", trainingPipelines: "training pipeline", studies: "study" };
const MOST_LINES = 3000;
const kindOf = (name) => name.split("/").at(-2);
const isStudy = (name) => ["hyperparameterTuningJobs", "studies"].includes(kindOf(name));

export async function jobs(names, about) {
  const { jobs: listed, counts, most } = await get("/console/v1/jobs");
  const notes = Object.entries(counts).map(([kind, all]) => left(most, all, `${KINDS[kind]}s`.replace("ys", "ies"))).filter(Boolean);
  const name = names.join("/");
  const list = { key: "jobs", sign: [listed, notes, name], make: () => (listed.length ? rows(listed, name, notes) : nothing(about)) };
  return { list: [list], detail: name ? await detail(name, about).catch((error) => broken(name, error)) : listed.length ? [overview(listed, counts, about.queue, about.project ? { parts: {} } : await disk())] : [] };
}

function rows(listed, chosen, notes) {
  const links = h("div", { class: "rows", "data-arrows": true, "data-s": "rows" }, listed.map((one) =>
    h("a", { class: "row", href: address("jobs", one.name), "data-k": one.name, "aria-current": one.name === chosen ? "true" : undefined },
      h("b", { class: "name", title: one.displayName }, one.displayName || last(one.name)), state(one.state),
      h("span", { class: "soft" }, `${KINDS[kindOf(one.name)]} · ${trialsOf(one)}${region(one.name)} · `, moment(one.createTime)))));
  return h("div", {}, links, notes.map((note) => h("p", { class: "soft" }, note)));
}

const trialsOf = (one) => (one.trials ? `${one.trials.ended} of ${one.trials.asked} trials · ` : "");

function nothing(about) {
  if (about.project) return h("div", { class: "empty" }, h("h2", {}, "No jobs yet"), commands(["vertexrig submit NAME"], "A job of vertexrig.yaml:"));
  return h("div", { class: "empty" }, h("h2", {}, "No jobs yet"), h("p", {}, "Jobs that you create on this server appear here."),
    commands([`eval "$(vertexrig local env --root ${quoted(about.root)})"`, "vertexrig submit NAME"], "A job of vertexrig.yaml:"),
    commands([`vertexrig local run --root ${quoted(about.root)} -- python program.py`], "A program that uses Vertex AI, unchanged:"));
}

const LAST = 10;
const DISK_MS = 60_000;  // every file of the state is counted
let used = { at: 0 };

async function disk() {
  if (Date.now() - used.at > DISK_MS) used = { ...(await get("/console/v1/disk")), at: Date.now() };
  return used;
}

function overview(listed, counts, queue, { parts, free }) {
  const more = Object.values(counts).some((many) => many < 0);
  const all = more ? `${listed.length}+` : Object.values(counts).reduce((sum, many) => sum + many, 0);
  const [largest, ...others] = Object.entries(parts).sort(([, a], [, b]) => b - a);
  const bytes = Object.values(parts).reduce((sum, many) => sum + many, 0);
  const most = [largest, ...others].filter(Boolean).slice(0, 3).map(([name, many]) => [h("span", { class: "whole" }, `${name} `, size(many)), ", "]);
  const rows = listed.slice(0, LAST).map((one) => [
    h("span", { class: "name", title: one.displayName }, link("jobs", one.name, one.displayName || last(one.name))), KINDS[kindOf(one.name)], state(one.state),
    one.trials ? `${one.trials.ended} of ${one.trials.asked}` : "", moment(one.createTime), one.startTime ? span(one.startTime, one.endTime) : "",
  ]);
  const make = () => h("div", {}, h("h2", {}, "Overview"),
    h("div", { class: "tiles" },
      queue ? [tile("running", queue.running, `${queue.waiting} waiting`), tile("slots in use", `${queue.used} of ${queue.slots}`)] : tile("not ended", listed.filter((one) => !isOver(one.state)).length),
      tile("jobs", all, "of all kinds"),
      queue && tile("on this disk", size(bytes), [most, h("span", { class: "whole" }, size(free), " free")])),
    h("h3", {}, "Last jobs"), table("overview", ["job", "kind", "state", "trials", "created", "ran for"], rows, "Last jobs"));
  return { key: "overview", sign: [listed.slice(0, LAST), queue, parts, all], make };
}

// A job that cannot be shown, such as one that was deleted, leaves the list beside it as it is.
function broken(name, error) {
  if (error instanceof TypeError) throw error;  // the server does not answer
  const make = () => h("div", { class: "head" }, h("a", { class: "back", href: "#/jobs", "data-k": "back" }, "‹ All jobs"), h("p", {}, `This job cannot be shown: ${error.message}`));
  return [{ key: `head ${name}`, sign: error.message, make }];
}

async function detail(name, about) {
  if (isStudy(name)) return study(name, about);
  const job = await get(`/vertex/v1/${name}`);
  const head = { key: `head ${name}`, sign: job, make: () => heading(job, about) };
  if (kindOf(name) !== "customJobs") return [head, backing(job)];
  const others = await candidates(job);
  const own = await get(`/console/v1/${name}/replicas`);
  await log.follow(last(name));
  const several = own.replicas.some((one) => one.accelerators);
  const heads = ["replica", "role", "machine", ...(several ? ["accelerators"] : []), ...(own.folder ? ["log", "last line"] : [])];
  const cells = own.replicas.map((one) => [one.name, one.role, one.machine, ...(several ? [one.accelerators] : []), ...(own.folder ? [size(one.bytes), moment(one.written && one.written * 1000)] : [])]);
  return [
    head, ...others,
    { key: `replicas ${name}`, sign: cells, make: () => h("div", {}, h("h3", {}, `Replicas (${cells.length})`), table("replicas", heads, cells, "Replicas")) },
    ...(own.notes.length ? [{ key: `notes ${name}`, sign: own.notes, make: () => h("div", {}, h("h3", {}, "From the local Vertex"), own.notes.map((note) => h("p", { "data-part": "note" }, note))) }] : []),
    { key: `log ${name}`, sign: [own.replicas.map((one) => one.name), own.folder], make: () => log.panel(own) },
    specification(job.jobSpec, name),
  ];
}

// The jobs of a request that has candidates, one after the other; one that was refused has no job.
async function candidates(job) {
  if (!job.labels?.vertexrig_candidate) return [];
  const { candidates: made } = await get(`/console/v1/${job.name}/candidates`);
  const heads = ["candidate", "job", "region", "state", "created", "waited", "ran for", "ended with"];
  const make = () => h("div", {}, h("h3", {}, `Candidates (${made.length} with a job)`), table("candidates", heads, made.map((one) => [
    one.candidate, one.name === job.name ? last(one.name) : link("jobs", one.name, last(one.name)), region(one.name), state(one.state), moment(one.createTime),
    span(one.createTime, one.startTime || one.endTime), one.startTime ? span(one.startTime, one.endTime) : "", one.error,
  ]), "Candidates"));
  return [{ key: `candidates ${job.name}`, sign: made, make }];
}

const specification = (spec, name) => ({
  key: `spec ${name}`, sign: spec, make: () => h("details", {}, h("summary", { "data-k": "spec" }, "Specification"), h("pre", {}, JSON.stringify(spec, null, 2))),
});

function backing(job) {
  const name = job.pipelineTaskMetadata?.backingCustomJob ?? job.trainingTaskMetadata?.backingCustomJob ?? job.trainingTaskMetadata?.backingHyperparameterTuningJob;
  return { key: `backing ${job.name}`, sign: name ?? "", make: () => h("p", {}, name ? ["It runs as ", link("jobs", name, last(name)), "."] : "It has no job yet.") };
}

function heading(job, about) {
  const id = last(job.name);
  return h("div", { class: "head" },
    h("a", { class: "back", href: "#/jobs", "data-k": "back" }, "‹ All jobs"),
    h("h2", { class: "name", title: job.displayName }, job.displayName || id), state(job.state),
    facts([
      ["kind", KINDS[kindOf(job.name)]], ["number", id], ["region", region(job.name)], ["created", moment(job.createTime)],
      [isOver(job.state) || !job.startTime ? "ran for" : "runs for", job.startTime ? span(job.startTime, job.endTime) : ""],
      ["labels", Object.entries(job.labels ?? {}).map(([key, value]) => `${key}=${value}`).join(", ")],
    ]),
    job.error && h("pre", { class: "error" }, job.error.message),
    h("details", {}, h("summary", { "data-k": "commands" }, "Commands"), commands(lines(job, about), "Type these in the folder of your vertexrig.yaml; this page changes nothing.")));
}

function lines(job, about) {
  const [id, kind, running] = [last(job.name), kindOf(job.name), !isOver(job.state)];
  const root = about.root && `--root ${quoted(about.root)}`;
  const found = {
    customJobs: [`vertexrig logs ${id}`, running && `vertexrig watch ${id}`, running && `vertexrig cancel ${id}`, root && word(job.state) === "running" && `vertexrig local kill ${id} workerpool0-0 ${root}`],
    hyperparameterTuningJobs: [`vertexrig trials ${id}`, `vertexrig best ${id}`, `vertexrig report ${id} -o report.html`, running && `vertexrig cancel ${id}`],
  };
  return [root && `eval "$(vertexrig local env ${root})"`, ...(found[kind] ?? [])].filter(Boolean);
}

async function study(name, about) {
  const [job, data] = await Promise.all([get(`/vertex/v1/${name}`), get(`/console/v1/${name}/study`).catch((error) => ({ error: error.message, trials: [], goals: [], parameters: [] }))]);
  const { trials: _, ...plain } = job;
  Object.assign(plain, data.ran);
  const others = await candidates(plain);
  const best = data.trials.filter((trial) => trial.best);
  const more = [...new Set(data.trials.flatMap((trial) => Object.keys(trial.metrics)))].filter((one) => !data.goals.includes(one));
  const drawn = await charts(name, data);
  return [
    { key: `head ${name}`, sign: plain, make: () => heading(plain, about) }, ...others,
    { key: `best ${name}`, sign: [best, data.asked, data.trials.map((trial) => trial.state)], make: () => tiles(data, best) },
    { key: `charts ${name}`, sign: drawn, make: () => h("div", {}, h("h3", {}, "Charts"), drawn.sections.length ? figures(name, drawn, data.goals[0]) : h("p", { class: "soft" }, drawn.error ?? "Charts appear when the first trial has started.")) },
    { key: `trials ${name}`, sign: data.trials, make: () => trials(data, [...data.goals, ...more]) },
    specification(job.studySpec, name),
  ];
}

const lastCharts = { sign: "" };

// The charts change when a trial starts or ends, not with each measurement.
async function charts(name, data) {
  if (data.error) return { sections: [], error: data.error };
  const sign = JSON.stringify([name, data.trials.map((trial) => [trial.id, trial.state])]);
  if (lastCharts.sign !== sign) Object.assign(lastCharts, await get(`/console/v1/${name}/charts`), { sign });
  return lastCharts;
}

let loading = null;
shared.charts.from(() => {
  loading ??= new Promise((done, fail) => {
    const script = h("script", { src: "/console/vega.js", onload: () => done(globalThis.vegaEmbed), onerror: () => { loading = null; fail(new Error("the server did not send the drawing library; `pip install vl-convert-python` in its environment")); } });
    document.head.append(script);
  });
  return loading;
});

function figures(name, { sections, data }, goal) {
  const figure = (chart) => {
    const place = h("div", { class: "chart", id: `chart-${chart.id}`, "data-chart": chart.id, "data-of": name, role: "group", "aria-label": chart.title });
    const wide = chart.least_width ? { tabindex: "0", role: "region", "aria-label": chart.title, "data-s": chart.id } : {};
    place.style.minWidth = `${chart.least_width}px`;
    shared.charts.show(place, chart, data, document.querySelector(`[data-of="${CSS.escape(name)}"][data-chart="${chart.id}"]`));
    return h("figure", {}, h("h4", {}, chart.title), h("div", { class: "scroll", ...wide }, place), chart.note && h("figcaption", {}, chart.note));
  };
  return sections.map(({ id, charts: own }) => [id === "slices" && h("h4", {}, `${goal} by each parameter`), h("div", { class: id === "slices" ? "grid" : "" }, own.map(figure))]);
}

function tiles(data, best) {
  const count = (...states) => data.trials.filter((trial) => states.includes(trial.state)).length;
  const ended = count("SUCCEEDED", "INFEASIBLE");
  const rest = [[count("ACTIVE", "REQUESTED", "STOPPING"), "running"], [count("INFEASIBLE"), "infeasible"]].filter(([many]) => many);
  return h("div", { class: "tiles" },
    best.length === 1 && data.goals.map((name) => tile(`best ${name}`, best[0].metrics[name] ?? "", `trial ${best[0].id}`)),
    best.length > 1 && tile("not beaten", `${best.length} trials`, "no other trial is better in every metric"),
    tile("trials", `${ended} of ${data.asked ?? data.trials.length}`, rest.map(([many, name]) => `${many} ${name}`).join(", ")),
    best.length === 1 && h("div", { class: "tile wide" }, h("span", {}, "its parameters"), h("code", {}, Object.entries(best[0].parameters).map(([name, value]) => [h("span", {}, `--${name}=${value}`), " "]))));
}

function trials(data, metrics) {
  const { parameters } = data;
  const heads = ["trial", "state", ...metrics, ...parameters, "time", "log"];
  const cells = data.trials.map((trial) => {
    const row = [
      trial.id, h("span", {}, state(trial.state), trial.reason && h("span", { class: "soft" }, ` ${trial.reason}`)),
      ...metrics.map((name) => trial.metrics[name] ?? ""), ...parameters.map((name) => trial.parameters[name] ?? ""), span(trial.start, trial.end),
      trial.job ? h("a", { href: address("jobs", trial.job), "data-k": `trial ${trial.id}`, "aria-label": `log of trial ${trial.id}` }, "log") : "",
    ];
    row.class = trial.best ? "best" : undefined;
    return row;
  });
  return h("div", {}, h("h3", {}, "Trials"), cells.length ? table("trials", heads, cells, "Trials") : h("p", { class: "soft" }, "No trial has started yet."));
}

// The log of one job: its newest lines, then new ones as they come.
class Log {
  constructor() {
    this.id = "";
    this.box = h("div", { class: "log", tabindex: "0", role: "region", "aria-label": "Log", "data-k": "log" });
    this.box.addEventListener("scroll", () => {
      const atEnd = this.box.scrollHeight - this.box.scrollTop - this.box.clientHeight < 30;
      if (this.box.isConnected && this.box.clientHeight) this.following.checked = atEnd;
    });
    this.following = h("input", { type: "checkbox", id: "follow", checked: true, "data-k": "follow", onchange: () => this.toEnd() });
    this.task = "";
  }

  async follow(id) {
    if (id !== this.id) {
      Object.assign(this, { id, seen: new Set(), newest: "", task: "" });
      this.box.replaceChildren();
      this.following.checked = true;
    }
    const more = this.newest ? ` AND timestamp>="${this.newest}"` : "";
    for (let token = ""; ;) {
      const page = await post("/logging/v2/entries:list", {
        resourceNames: ["projects/-"], filter: `resource.labels.job_id="${id}"${more}`,
        orderBy: this.newest ? "timestamp asc" : "timestamp desc", pageSize: 1000, ...(token ? { pageToken: token } : {}),
      });
      if (id !== this.id) return;
      const entries = page.entries ?? [];
      this.add(more ? entries : entries.reverse());
      token = more ? page.nextPageToken : "";
      if (!token) return;
    }
  }

  add(entries) {
    const fresh = entries.filter((entry) => !this.seen.has(entry.insertId));
    if (!fresh.length) return;
    for (const entry of fresh) this.seen.add(entry.insertId);
    this.newest = fresh.at(-1).timestamp;
    this.box.append(...fresh.map((entry) => this.line(entry)));
    while (this.box.childElementCount > MOST_LINES) this.box.firstElementChild.remove();
    this.toEnd();
  }

  line(entry) {
    const task = entry.resource?.labels?.task_name ?? "";
    const payload = entry.jsonPayload;
    const text = entry.textPayload ?? (typeof payload?.message === "string" ? payload.message : JSON.stringify(payload ?? ""));
    return h("div", { class: "line", "data-task": task, "data-severity": entry.severity, hidden: Boolean(this.task) && this.task !== task },
      h("time", {}, clock(entry.timestamp)), h("span", { class: "task" }, task), h("span", { class: "text" }, text));
  }

  toEnd() {
    if (this.following.checked) this.box.scrollTop = this.box.scrollHeight;
  }

  choose(task) {
    this.task = task;
    for (const line of this.box.children) line.hidden = Boolean(task) && line.dataset.task !== task;
    this.toEnd();
  }

  panel(own) {
    const names = ["", ...own.replicas.map((one) => one.name), "service"];
    const chosen = h("select", { id: "task", "data-k": "task", onchange: () => this.choose(chosen.value) },
      names.map((name) => h("option", { value: name, selected: name === this.task }, name || "all")));
    requestAnimationFrame(() => this.toEnd());
    return h("div", {}, h("h3", {}, "Log"),
      h("div", { class: "bar" }, h("label", { for: "task" }, "Replica "), chosen, h("label", {}, this.following, " Follow")),
      this.box, own.folder && h("p", { class: "soft" }, `Also in ${own.folder}`));
  }
}

const log = new Log();
