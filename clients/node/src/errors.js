// What can go wrong.

/** Something of this package failed. */
export class OutlastError extends Error {
  constructor(message, options) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** The call is not valid. Nothing was sent. */
export class UsageError extends OutlastError {}

/** No answer came: it is not known whether anything was done. */
export class Unreachable extends OutlastError {
  constructor(server, tries, reason, cause) {
    const times = tries === 1 ? "once" : `${tries} times`;
    super(`server ${server} cannot be reached (tried ${times}): ${reason}`, { cause });
    Object.assign(this, { server, tries, reason });
  }
}

/** The server refused. Nothing was done, except that a status of 500 and above leaves it open. */
export class Refused extends OutlastError {
  constructor(status, error, retryAfter) {
    const code = error.code ?? `http_${status}`;
    const message = error.message ?? "no reason given";
    const hint = error.hint ? `; ${error.hint}` : "";
    super(`server refused: ${message} (${status} ${code})${hint}`);
    const { details, request_id: requestId } = error;
    Object.assign(this, { status, code, hint: error.hint, details, requestId, retryAfter });
  }

  /** Whether the same request may succeed later. */
  get isForNow() {
    return [408, 429, 502, 503, 504].includes(this.status) && this.code !== "QUEUE_FULL";
  }
}

/** There is no such job, workflow or path. */
export class NotFound extends Refused {}

/** The state of the job does not allow it, another worker holds it, or it is a duplicate. */
export class Conflict extends Refused {}

/** The queue has no room (its `max_depth`). None of the request's jobs was stored. */
export class QueueFull extends Refused {}

/** It had not ended when the time was over. */
export class WaitTimeout extends OutlastError {
  constructor(what, waited, last) {
    const seen = last ? `; it is ${last.state}` : "; it was never seen";
    super(`${what} had not ended after ${waited} ms${seen}`);
    this.last = last;
  }
}

/** The job has ended without a result. */
export class JobFailed extends OutlastError {
  constructor(job) {
    const reason = job.error ? `: ${job.error.type ?? "error"}: ${job.error.message ?? ""}` : "";
    super(`job ${job.id} (${job.type}) is ${job.state}${reason}`);
    this.job = job;
  }
}

/** The workflow has ended, and did not complete. */
export class WorkflowFailed extends OutlastError {
  constructor(workflow) {
    super(`workflow ${workflow.id} is ${workflow.state}`);
    this.workflow = workflow;
  }
}

/** Throw it in a handler: no other attempt could do better, so none is made. */
export class Permanent extends OutlastError {
  constructor(message, type = "permanent") {
    super(message);
    this.type = type;
  }
}

/**
 * The reason of a job's signal: the job was cancelled or its time is over, or the worker ends or has
 * lost its server.
 */
export class JobCancelled extends OutlastError {
  constructor(reason) {
    super(`the job is to stop: ${reason}`);
    this.reason = reason;
  }
}

/** One try came to nothing. `sent`: whether the server may have received the request. */
export class Unanswered extends OutlastError {
  constructor(reason, sent, cause) {
    super(reason, { cause });
    this.sent = sent;
  }
}

/** Reads the server's refusal. */
export function refusal(status, body, retryAfter) {
  const error = typeof body?.error === "object" && body.error !== null ? body.error : {};
  const Kind = error.code === "QUEUE_FULL" ? QueueFull : { 404: NotFound, 409: Conflict }[status];
  return new (Kind ?? Refused)(status, error, retryAfter);
}
