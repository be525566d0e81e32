// Uses every part of the producer, and prints what came of it as JSON.

import { Client, Graph, batch, chain, group } from "outlast";
import { app, forward, send } from "./tasks.mjs";

const { client } = app;
const TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const said = {};
const meta = { traceparent: TRACE };
const failure = (promise) => promise.then(() => undefined, (error) => error);

said.result = await (await send.using({ meta }).enqueue("ada@x", "a b", { copies: 2 })).waitResult();
const inner = await (await forward.using({ meta }).enqueue("ada@x")).waitResult();
said.inner_trace = (await (await client.get(inner)).waitResult()).trace;
const { job: failed } = await failure((await send.enqueue("ada")).waitResult());
said.error = [failed.state, failed.error.type, failed.error.message];
said.untyped = (await (await app.enqueue("letter.send", ["ada@x", "one", { copies: 3 }])).waitResult()).words;
said.unknown = (await (await app.enqueue("letter.burn", [], { retries: 0 })).wait()).error.type;

const jobs = await client.enqueueAll(Array.from({ length: 20 }, (_, n) => send.job("ada@x", String(n))));
const states = await Promise.all(jobs.map(async (job) => (await job.wait()).state));
said.batch = [...new Set(states)].concat(new Set(jobs.map(({ id }) => id)).size);

const keyed = send.using({ idempotencyKey: "letter-7" });
said.same_key = (await keyed.enqueue("ada@x")).id === (await keyed.enqueue("ada@x")).id;
said.other_body = (await failure(keyed.enqueue("bob@x")))?.status;

const once = send.using({ unique: { onConflict: "ignore" }, delay: 3_600_000 });
const first = await once.enqueue("una@x"), second = await once.enqueue("una@x");
said.unique = [first.id === second.id, second.deduplicated, first.state];
said.waited = (await failure(first.wait(200))).last.state;
said.cancelled = [(await first.cancel()).state, (await first.cancel()).state];
said.missing = (await failure(client.get("01a1fcae-2d50-72c9-9c67-56e57a9c8e21"))).code;

const events = client.events({ types: ["job.completed"] });
// It begins with its first event: from now on is when that is asked for.
const next = events.next();
const watched = await send.enqueue("eve@x");
let event = (await next).value;
while (event.data.job_id !== watched.id) event = (await events.next()).value;
said.followed = event.type;
await events.return();
const types = [];
let begin;
for await (const { id, type } of watched.events()) {
  begin ??= id;
  types.push(type);
}
said.events = types;
const resumed = client.events({ job: watched.id, after: begin });
said.resumed = (await resumed.next()).value.type;
await resumed.return();

const to = send.job("ada@x");
said.chain = (await (await client.start(chain(to, group(to, to)), { name: "three" })).wait()).state;
said.callback = (await (await client.start(batch([to, send.job("ada")], { onFailure: to }))).wait()).state;
said.graph = (await (await client.start(new Graph("two").step("a", to).step("b", to, "a"))).wait()).name;
said.failed = (await failure((await client.start(chain(send.job("ada"), to))).wait())).workflow.state;

said.schedule = (await client.schedule("yearly", "0 2 1 1 *", to, { timeZone: "Europe/Vienna" })).next_run_at.slice(-10);
said.paused = [(await client.pauseSchedule("yearly")).enabled, (await client.resumeSchedule("yearly")).enabled];
await client.removeSchedule("yearly");
await client.removeSchedule("yearly");
said.schedules = (await client.schedules()).length;

const began = performance.now();
const away = await failure(new Client("http://127.0.0.1:9", { retryFor: 0 }).enqueue("t"));
said.away = [away.name, performance.now() - began < 5000];
console.log(JSON.stringify(said));
