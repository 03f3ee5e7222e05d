// BullMQ on Redis: `node bullmq.mjs worker [CONCURRENCY]`, `node bullmq.mjs drain JOBS`, `node bullmq.mjs late JOBS SECONDS`.
// Lies beside node_modules when it runs. Notes what the other contestants do.

import { renameSync, writeFileSync } from "node:fs";
import { Queue, Worker } from "bullmq";

const BATCH = 500;
const LEAD = 5000; // ms until the first delayed job is due
const PAYLOAD = { to: "user@example.com", subject: "hello there", body: "x".repeat(48) };
const place = new URL(process.env.DEMORA_BENCH_PLACE);
const connection = { host: place.hostname, port: Number(place.port), maxRetriesPerRequest: null };
const [what, number, seconds] = [process.argv[2], Number(process.argv[3]), Number(process.argv[4])];

if (what === "worker") {
  const expected = Number(process.env.DEMORA_BENCH_JOBS);
  const times = [];
  const waits = [];
  let ran = 0;
  new Worker("bench", async (job) => {
    const now = Date.now() / 1000;
    if (job.name === "stamp") {
      waits.push([job.data.due, now]);
      if (waits.length === expected) write(waits);
    } else {
      ran += 1;
      if (ran === 1 || ran === expected) times.push(now);
      if (times.length === 2) write(times);
    }
    return { ok: true };
  }, { connection, concurrency: number || 1 });
} else {
  const queue = new Queue("bench", { connection });
  if (what === "drain") {
    for (let begin = 0; begin < number; begin += BATCH) {
      const many = Array.from({ length: Math.min(BATCH, number - begin) }, () => ({ name: "noop", data: PAYLOAD }));
      await queue.addBulk(many);
    }
  } else {
    const first = Date.now() + LEAD;
    const dues = Array.from({ length: number }, () => first + Math.random() * seconds * 1000);
    await queue.addBulk(dues.map((due) => (
      { name: "stamp", data: { due: due / 1000 }, opts: { delay: Math.max(0, Math.round(due - Date.now())) } }
    )));
  }
  await queue.close();
}

function write(noted) {
  const file = process.env.DEMORA_BENCH_NOTES;
  writeFileSync(`${file}.part`, JSON.stringify(noted));
  renameSync(`${file}.part`, file);
}
