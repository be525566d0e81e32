// Handlers that write what they do to a ledger, which Outlast never touches.

import { appendFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

import { Outlast, Permanent } from "outlast";

export const app = new Outlast(undefined, { queue: "tests" });
const TICK = 50;

function note({ id, epoch }, event) {
  const at = Number(process.hrtime.bigint()) / 1e9;
  appendFileSync(process.env.LEDGER, `${JSON.stringify({ job: id, epoch, pid: process.pid, event, at })}\n`);
}

export const send = app.job("letter.send", { retries: 0 }, (job, to, text = "", { copies } = { copies: 1 }) => {
  if (!to.includes("@")) throw new Permanent(`not an address: ${to}`, "bad_address");
  return { words: text.split(" ").filter(Boolean).length * copies, trace: job.traceparent };
});

export const forward = app.job("letter.forward", async (job, to) => (await send.enqueue(to)).id);

export const work = app.job("work", { retries: 9 }, async (job, seconds) => {
  note(job, "start");
  try {
    for (const end = Date.now() + seconds * 1000; Date.now() < end; ) {
      await job.sleep(Math.min(TICK, seconds * 1000));
      note(job, "alive");
    }
  } catch (error) {
    note(job, "term");
    throw error;
  }
  note(job, "end");
});

app.job("deaf", { retries: 9 }, async (job, seconds) => {
  note(job, "start");
  for (const end = Date.now() + seconds * 1000; Date.now() < end; ) {
    await sleep(TICK);
    note(job, "alive");
  }
});

// Keeps the event loop busy.
app.job("busy", { retries: 9 }, (job, seconds) => {
  note(job, "start");
  for (const end = Date.now() + seconds * 1000; Date.now() < end; );
  note(job, "end");
});
