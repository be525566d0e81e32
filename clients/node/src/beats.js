// The thread that sends heartbeats and fetches jobs: both go on while a handler keeps the event loop busy,
// and a job that came meanwhile is kept. It ends the process when handlers still run at the end of a lease:
// their jobs may run elsewhere from then on.

import { parentPort, workerData } from "node:worker_threads";

import { Backoff, now } from "./backoff.js";
import { endDescendants } from "./descendants.js";
import { Transport, encode } from "./transport.js";

const { settings, lease, patience, stopTime, said } = workerData;
const answered = new Float64Array(workerData.answered);
const transport = new Transport(settings);
const backoff = new Backoff(Math.min(200, lease / 12), lease / 12);
let next, state = "running", jobs = [], attempts = [], beating = false, again = false, leaves = false;
// Jobs that were fetched, and that the main thread has not taken yet.
let fetched = [];
// Whether a handler runs, and what ends it at the end of the lease.
let isBusy = false, end;

parentPort.on("message", (message) => {
  if (message.fetch !== undefined) return void fetchJobs(message);
  if (message.hasTaken) fetched = [];
  ({ state, jobs, attempts = [], isBusy = false, leaves } = message);
  if (message.beat || leaves) void beat();
});
void beat();

async function beat() {
  // One at a time; another one after it if something has changed meanwhile.
  if (beating) return void (again = true);
  clearTimeout(next);
  beating = true;
  let pause;
  const sent = now(), isLast = leaves, listed = attempts;
  try {
    const active = [...new Set([...jobs, ...fetched])];
    const body = encode({ ...said, state: isLast ? "terminated" : state, active_jobs: active });
    const answer = await transport.once("POST", "/ojs/v1/workers/heartbeat", body, { timeout: lease / 6 });
    // The main thread may be too busy to read messages, but it must know that a server is there.
    answered[0] = sent;
    clearTimeout(end);
    end = undefined;
    if (!isLast) parentPort.postMessage({ answer: answer ?? {}, attempts: listed });
    backoff.reset();
    pause = (lease / 6) * (0.9 + Math.random() / 10);
  } catch (error) {
    // `terminated` is Outlast's own word; the lease says the same, later.
    if (!isLast) parentPort.postMessage({ failed: error.message });
    // Not for want of heartbeats alone: a machine that wakes up finds its server again.
    if (sent > answered[0] + patience) {
      end ??= setTimeout(kill, Math.max(answered[0] + lease - now(), stopTime));
    }
    pause = backoff.pause();
  }
  beating = false;
  // The last word comes after all others.
  if (isLast) return parentPort.postMessage({ left: true });
  next = setTimeout(beat, again ? 0 : pause);
  again = false;
}

async function fetchJobs({ fetch, timeout }) {
  try {
    const answer = await transport.once("POST", "/ojs/v1/workers/fetch", encode(fetch), { timeout });
    fetched = (answer?.jobs ?? []).map(({ id }) => id);
    parentPort.postMessage({ fetched: answer?.jobs ?? [] });
  } catch ({ message, retryAfter }) {
    parentPort.postMessage({ refused: { message, retryAfter } });
  }
}

function kill() {
  end = undefined;
  if (!isBusy) return;
  endDescendants(process.pid);
  process.kill(process.pid, "SIGKILL");
}
