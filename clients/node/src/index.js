// Enqueue jobs and run them, on an Outlast server or any other of the Open Job Spec.

export { Outlast, Task } from "./app.js";
export { Client, Job, Workflow } from "./client.js";
export { JobContext, currentJob } from "./context.js";
export {
  Conflict, JobCancelled, JobFailed, NotFound, OutlastError, Permanent, QueueFull, Refused, Unreachable,
  UsageError, WaitTimeout, WorkflowFailed,
} from "./errors.js";
export { Worker } from "./worker.js";
export { Graph, batch, chain, group } from "./workflows.js";
