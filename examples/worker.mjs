// A remote worker for demora: node worker.mjs http://127.0.0.1:8080 (the API key, if one is needed, in DEMORA_API_KEY).
// The protocol: docs/reference/worker-protocol.md. It needs Node.js 18 or later and nothing else.
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

// A handler gets the payload and { job, signal, report }. It returns the result, or throws. `signal` tells it to stop.
const handlers = {
  "example.sum": async ({ numbers }) => numbers.reduce((sum, one) => sum + one, 0),
  "example.sleep": async ({ ms }, { signal }) => sleep(ms, "rested", { signal }),
  "example.fail": async ({ permanent }) => { throw Object.assign(new Error("as asked"), { permanent }); },
};
const [base = "http://127.0.0.1:8080", slots = "4"] = process.argv.slice(2), key = process.env.DEMORA_API_KEY;
const headers = { "content-type": "application/json", ...(key && { authorization: `Bearer ${key}` }) };
const running = new Map(); // lease → { job, until, stop, news }
const stopping = new AbortController();
let worker, lease;

async function call(path, data, method = "POST", signal = undefined) {
  const body = data && JSON.stringify(data);
  for (let pause = 100; ; pause = Math.min(pause * 2, 5000)) {
    try { // every request of the protocol may be repeated
      const answer = await fetch(`${base}/api/v1/workers${path}`, { method, headers, signal, body });
      if (answer.ok) return answer.status === 204 ? null : await answer.json();
      const { detail } = await answer.json().catch(() => ({}));
      if (answer.status < 500 && answer.status !== 429) throw Object.assign(new Error(detail), { status: answer.status });
      pause = Math.max(pause, 1000 * (answer.headers.get("retry-after") ?? 0));
    } catch (error) {
      if (error.status || signal?.aborted) throw error;
    }
    await sleep(pause);
  }
}

async function run(job, until) {
  const control = new AbortController(), { id, token } = job, name = `${id} ${token}`;
  const stop = (why) => control.abort(new Error(why)), timer = setTimeout(stop, job.timeout, "TimedOut");
  const run = { job, until, stop, news: {} };
  running.set(name, run);
  const report = (progress, message) => (run.news = { progress, message });
  const outcome = await handlers[job.type](job.payload, { job, signal: control.signal, report })
    .then((result) => ({ outcome: "completed", result: JSON.parse(JSON.stringify(result ?? null)) }))
    .catch((error) => failure(error, control.signal.reason?.message));
  clearTimeout(timer);
  if (outcome) await settle({ id, token, ...outcome }).catch(failed);
  running.delete(name); // until now its lease is renewed
}

function failure(thrown, why) { // why the worker has stopped the run, if it has
  if (why === "lost") return null; // another worker has the job
  if (why === "cancelled" || why === "handedBack") return { outcome: why };
  const { name, message, stack: traceback, permanent = false } = thrown instanceof Error ? thrown : new Error(String(thrown));
  return { outcome: "failed", error: { type: why ?? name, message, traceback, permanent } };
}

async function settle(job) {
  await call(`/${worker}/settle`, { jobs: [job] }).catch((error) => { // such as a result that is too large
    if (error.status === 404 || job.error?.type === "Refused") throw error;
    return settle({ id: job.id, token: job.token, ...failure(Object.assign(error, { name: "Refused", permanent: true })) });
  });
}

async function renew() {
  const sent = Date.now(), runs = [...running.values()];
  const jobs = runs.map(({ job: { id, token }, news }) => ({ id, token, ...news }));
  const { leaseMs, lost, cancelled } = await call(`/${worker}/renew`, { jobs });
  for (const run of runs) run.until = sent + leaseMs;
  for (const { id, token } of lost) running.get(`${id} ${token}`)?.stop("lost");
  for (const { id, token } of cancelled) running.get(`${id} ${token}`)?.stop("cancelled");
}

async function claim() {
  const sent = Date.now(), claimId = randomUUID(), wait = running.size ? 1000 : 20000;
  const { jobs } = await call(`/${worker}/claim`, { limit: slots - running.size, wait, claimId }, "POST", stopping.signal);
  for (const job of jobs) run(job, sent + job.leaseMs);
}

async function register() {
  ({ workerId: worker, lease } = await call("", { name: "node", types: Object.keys(handlers), slots: Number(slots) }));
}

async function failed(error) {
  if (stopping.signal.aborted) return;
  console.error(error.message);
  await (error.status === 404 ? register() : sleep(1000)); // 404: the service has forgotten this worker
}

for (const signal of ["SIGTERM", "SIGINT"]) process.on(signal, () => stopping.abort());
await register();
setInterval(() => renew().catch(() => {}), Math.min(lease / 3, 1000)); // hears of a cancel within a second
setInterval(() => { // a run whose lease has lapsed may have started elsewhere
  for (const run of running.values()) if (Date.now() > run.until) run.stop("lost");
}, 100);
console.log("ready", worker);
while (!stopping.signal.aborted) await (running.size < slots ? claim() : sleep(20)).catch(failed);
for (const run of running.values()) run.stop("handedBack");
while (running.size) await sleep(20);
await call(`/${worker}`, undefined, "DELETE");
process.exit(0);
