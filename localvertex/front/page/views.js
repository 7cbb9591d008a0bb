// Buckets and objects, schedules, models, and the calls of every client.
import { commands, everywhere, facts, get, h, last, left, link, moment, quoted, region, size, span, state, table, tile } from "/console/dom.js";

const part = (key, sign, make) => ({ key, sign, make });
const title = (text, note = "") => h("div", { class: "head" }, h("h2", {}, text), note && h("p", { class: "soft" }, note));

export async function buckets(names, about) {
  if (!names.length) {
    const page = await get("/storage/v1/b?project=local&maxResults=1000");
    const found = page.items ?? [];
    const note = page.nextPageToken ? "The first 1,000 are shown." : "";
    const cells = found.map((one) => [link("buckets", one.name, `gs://${one.name}`), one.location ?? "", moment(one.timeCreated)]);
    const make = () => h("div", {}, title("Buckets", note), cells.length ? table("buckets", ["bucket", "location", "created"], cells, "Buckets") : commands(["gcloud storage buckets create gs://NAME"], "There are no buckets yet. To create one:"));
    return { whole: [part("buckets", found, make)] };
  }
  const [bucket, ...folders] = names;
  const prefix = folders.length ? `${folders.join("/")}/` : "";
  const page = await get(`/storage/v1/b/${encodeURIComponent(bucket)}/o?delimiter=/&maxResults=1000&prefix=${encodeURIComponent(prefix)}`);
  const cells = [
    ...(page.prefixes ?? []).map((name) => [link("buckets", `${bucket}/${name.slice(0, -1)}`, name.slice(prefix.length)), "", ""]),
    ...(page.items ?? []).map((one) => [media(about, bucket, one.name, one.name.slice(prefix.length)), size(one.size), moment(one.updated)]),
  ];
  const steps = folders.map((name, at) => [" / ", link("buckets", [bucket, ...folders.slice(0, at + 1)].join("/"), name)]);
  const note = page.nextPageToken ? "The first 1,000 are shown." : "";
  const make = () => h("div", {},
    h("div", { class: "head" }, h("h2", { class: "path" }, link("buckets", "", "Buckets"), " / ", link("buckets", bucket, `gs://${bucket}`), steps), note && h("p", { class: "soft" }, note)),
    cells.length ? table("objects", ["object", "size", "written"], cells, "Objects") : h("p", { class: "soft" }, "This folder is empty."));
  return { whole: [part(`objects ${names.join("/")}`, page, make)] };
}

// Saved to a file, not opened: a page in a bucket is not a page of this server.
const media = (about, bucket, name, shown) =>
  about.project ? h("a", { href: `https://storage.cloud.google.com/${bucket}/${name.split("/").map(encodeURIComponent).join("/")}`, "data-k": `object ${name}` }, shown) :
  h("a", { href: `/storage/v1/b/${encodeURIComponent(bucket)}/o/${encodeURIComponent(name)}?alt=media`, download: last(name), "data-k": `object ${name}` }, shown);

// Objects below a prefix, all pages, since they are in the order of names: the newest is on the last one.
async function pages(bucket, prefix) {
  const found = [];
  for (let token = ""; ;) {
    const page = await get(`/storage/v1/b/${encodeURIComponent(bucket)}/o?prefix=${encodeURIComponent(prefix)}&maxResults=1000&pageToken=${encodeURIComponent(token)}`);
    found.push(...(page.items ?? []));
    token = page.nextPageToken;
    if (!token) return found;
  }
}

// The triggers that keep their objects in a bucket: `vertexrig/FUNCTION/`.
async function triggers() {
  const { items = [] } = await get("/storage/v1/b?project=local&maxResults=1000");
  const found = await Promise.all(items.map(async ({ name: bucket }) => {
    const { prefixes = [] } = await get(`/storage/v1/b/${encodeURIComponent(bucket)}/o?delimiter=/&prefix=vertexrig/`);
    return prefixes.map((prefix) => ({ bucket, prefix, name: prefix.split("/")[1] }));
  }));
  return found.flat();
}

function rowOf({ metadata }) {
  try {
    return JSON.parse(metadata?.row);
  } catch { /* not a row of ours */ }
  return null;
}

const SPENT = /\.(\d+)\.(\d+)(?:\.[a-z]+-[\w-]+)*$/;  // cents and trials, in the name of a row of the day's budget

// The trigger's open runs, how the others of this month ended, and what today's runs cost and take.
async function happened({ bucket, prefix, name }) {
  const day = new Date().toISOString().slice(0, 10);
  const [runs, rows, granted] = await Promise.all(["runs/", `history/${day.slice(0, 7)}/`, `days/${day}/`].map((folder) => pages(bucket, `${prefix}${folder}`)));
  const spent = granted.filter((one) => Number(one.size)).map((one) => SPENT.exec(one.name)).filter(Boolean);
  const sum = (at) => spent.reduce((all, found) => all + Number(found[at]), 0);
  const ended = rows.map(rowOf).filter(Boolean).map((row) => ({ end: {}, ...row }));
  const over = new Set(ended.filter((row) => row.end.outcome).map((row) => row.claim));
  return {
    name, usd: sum(1) / 100, trials: sum(2),
    open: runs.map((one) => ({ written: one.updated, ...rowOf(one) })).filter((row) => row.body && !over.has(row.id)),
    ended: ended.sort((one, other) => (one.time < other.time ? 1 : -1)).slice(0, 100),
  };
}

export async function runs(names, about) {
  const found = await Promise.all((await triggers()).map(happened));
  const empty = h("div", {}, title("Runs"), commands(["vertexrig function serve", "vertexrig schedule run NAME"], "A trigger keeps its runs in the project's bucket. There are none yet."));
  const make = () => (found.length ? h("div", {}, found.map((one) => trigger(one, one.name === about.function ? about.budget : {}))) : empty);
  return { whole: [part("runs", found, make)] };
}

function trigger({ name, usd, trials, open, ended }, limits) {
  const of = (limit) => (limit ? `of ${limit} today` : "today");
  const jobOf = (job, ...shown) => (job ? link("jobs", job, ...(shown.length ? shown : [last(job)])) : "");
  const lastJob = (one) => one.job || (one.attempts ?? []).map((attempt) => attempt.job).filter(Boolean).pop();
  const waits = (one) => [one.reason, one.text].filter(Boolean).join(": ");
  const at = (one) => (one.phase === "step" ? `step ${one.steps?.[one.step] ?? ""}` : one.phase === "attempt" ? `attempt ${(one.attempts ?? []).length || 1}` : one.phase ?? "attempt 1");
  const opened = open.map((one) => [moment(one.time), one.schedule ?? "", one.body.run, at(one), span(one.since || one.written), jobOf(lastJob(one)), waits(one)]);
  const over = ended.map((one) => [
    moment(one.time), one.schedule ?? "", one.run ?? "", one.decision ?? "", one.end.outcome ?? "", one.end.model ? link("models", one.end.model.split("@")[0], last(one.end.model)) : jobOf(one.job),
    one.end.usd === undefined || one.end.usd === null ? "" : `$${one.end.usd.toFixed(2)}`, one.end.reason || waits(one),
  ]);
  return h("section", {}, title(`Runs of ${name}`),
    h("div", { class: "tiles" }, tile("open", open.length), tile("cost", `$${usd.toFixed(2)}`, of(limits.usd_per_day && `$${limits.usd_per_day}`)), tile("trials", trials, of(limits.trials_per_day))),
    h("h3", {}, "Open"), opened.length ? table(`open ${name}`, ["due", "schedule", "run", "phase", "for", "job", "waits for"], opened, "Open runs") : h("p", { class: "soft" }, "No run is open."),
    h("h3", {}, "Deliveries"), over.length ? [h("p", { class: "soft" }, "The newest 100 of this month."), table(`deliveries ${name}`, ["time", "schedule", "run", "decision", "outcome", "job or model", "cost", "reason"], over, "Deliveries")] : h("p", { class: "soft" }, "No delivery this month."));
}

export async function schedules() {
  const { scheduler, schedules: all, most } = await get("/console/v1/locations");
  const found = (await everywhere("/scheduler", scheduler, "jobs", most)).slice(0, most);
  const cells = found.map((one) => [
    h("span", {}, last(one.name), one.description && h("span", { class: "soft" }, ` ${one.description}`)), h("code", {}, one.schedule), one.timeZone ?? "", state(one.state), one.httpTarget?.uri ?? "", moment(one.scheduleTime),
    moment(one.lastAttemptTime), one.status?.message ?? (one.lastAttemptTime ? "ok" : ""), region(one.name),
  ]);
  const heads = ["schedule", "cron", "time zone", "state", "target", "next", "last run", "result", "region"];
  const make = () => h("div", {}, title("Schedules", left(most, all, "schedules", "first")),
    cells.length ? [table("schedules", heads, cells, "Schedules"), commands(found.slice(0, 1).map((one) => `gcloud scheduler jobs run ${quoted(last(one.name))} --location=${region(one.name)}`), "To run one now:")]
      : commands(["vertexrig schedule apply"], "There are no schedules yet. To create those of vertexrig.yaml:"));
  return { whole: [part("schedules", [found, all], make)] };
}

export async function models(names) {
  const { vertex, models: all, most } = await get("/console/v1/locations");
  const made = (one) => new Date(one.createTime);
  const found = (await everywhere("/vertex", vertex, "models", most)).sort((a, b) => made(b) - made(a)).slice(0, most);
  const name = names.join("/");
  const versions = name ? (await get(`/vertex/v1/${name}:listVersions?pageSize=1000&orderBy=create_time%20desc`)).models ?? [] : [];
  const cells = found.map((one) => [link("models", one.name, one.displayName || last(one.name)), last(one.name), one.versionId ?? "", (one.versionAliases ?? []).join(", "), one.artifactUri ?? "", moment(one.createTime), region(one.name)]);
  const heads = ["model", "number", "version", "aliases", "artifact", "created", "region"];
  return { whole: [
    part("models", [found, all], () => h("div", {}, title("Models", left(most, all, "models")),
      cells.length ? table("models", heads, cells, "Models") : commands(["vertexrig register SWEEP"], "There are no models yet. To register the best trial of a sweep:"))),
    name && part(`model ${name}`, versions, () => h("div", {}, h("h3", {}, `Versions of ${versions[0]?.displayName ?? last(name)}`), versions.map((one) =>
      facts([["version", one.versionId], ["aliases", (one.versionAliases ?? []).join(", ")], ["artifact", one.artifactUri], ["image", one.containerSpec?.imageUri], ["created", moment(one.versionCreateTime ?? one.createTime)], ["labels", Object.entries(one.labels ?? {}).map(([key, value]) => `${key}=${value}`).join(", ")]])))),
  ] };
}

const kept = { pid: 0, last: 0, calls: [], unserved: [], refused: [] };
const MOST_CALLS = 300;
let wanted = "";
let asked = 0;

export async function calls(names, about, again) {
  // Each server numbers its calls from 1.
  if (about.pid !== kept.pid) Object.assign(kept, { pid: about.pid, last: 0, calls: [] });
  const own = ++asked;
  const page = await get(`/console/v1/calls?after=${kept.last}`);
  // The newest of several open requests has all rows of the others.
  if (own === asked) Object.assign(kept, { last: page.last, unserved: page.unserved, refused: page.refused, calls: [...kept.calls, ...page.calls].slice(-500) });
  const text = (one) => [one.method, one.target, one.client, one.status, one.word, one.transport].join(" ").toLowerCase();
  const rows = folded(kept.calls.filter((one) => text(one).includes(wanted.toLowerCase()))).reverse();
  const found = rows.slice(0, MOST_CALLS);
  const note = left(MOST_CALLS, rows.length, "rows");
  return { whole: [
    part("unserved", [kept.unserved, kept.refused], () => missing(kept)),
    part("filter", 0, () => filter(again)),
    part("calls", [found, note], () => (found.length ? h("div", {}, note && h("p", { class: "soft" }, note), table("calls", ["time", "method", "resource", "client", "status", "ms", "by"], found.map(cells), "Calls")) : h("p", { class: "soft" }, wanted ? "No call fits." : "No client has called yet."))),
  ] };
}

// Equal calls that follow each other, such as those of a client that waits, become one row.
function folded(calls) {
  const found = [];
  const sign = (one) => [one.method, one.target, one.client, one.status, one.transport].join("\n");
  for (const one of calls) {
    const before = found.at(-1);
    if (before && sign(before) === sign(one)) found[found.length - 1] = { ...one, times: before.times + 1 };
    else found.push({ ...one, times: 1 });
  }
  return found;
}

function missing({ unserved, refused }) {
  const rows = unserved.map((one) => [h("code", {}, one.method), one.client, one.transport, one.count]);
  return h("div", {},
    h("div", { class: "head" }, h("h2", {}, "Asked for, not served")),
    rows.length ? table("unserved", ["method", "client", "by", "times"], rows, "Asked for, not served") : h("p", { class: "soft" }, "Nothing so far: every method that was asked for is served."),
    refused.length ? [h("h3", {}, "Refused by the proxy"), h("ul", {}, refused.map((one) => h("li", {}, `${one.what} (${one.count}×)`)))] : null);
}

function filter(again) {
  const box = h("input", { type: "search", id: "wanted", "data-k": "wanted", oninput: () => { wanted = box.value; again(); } });
  box.value = wanted;
  return h("div", { class: "bar" }, h("h2", {}, "Calls"), h("label", { for: "wanted" }, "Filter "), box);
}

function cells(one) {
  const [, service, method] = /^(.*)\.([^.]+\.[^.]+)$/.exec(one.method) ?? [null, "", one.method];
  const status = h("span", { class: "state", "data-state": one.status < 400 ? "ok" : "failed" }, one.transport.startsWith("gRPC") ? one.word : `${one.status}${one.status < 400 ? "" : ` ${one.word}`}`);
  const times = one.times > 1 && h("span", { class: "soft" }, ` ×${one.times}`);
  return [moment(one.time), h("span", { title: one.method }, service && h("span", { class: "soft" }, `${service}.`), method, times), one.target, one.client, status, one.ms, one.transport];
}
