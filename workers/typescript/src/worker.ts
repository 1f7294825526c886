import { randomBytes } from "node:crypto";
import { hostname } from "node:os";

import { AgendaAttempt, ABANDON_AFTER_MS } from "./attempt.js";
import { ProblemError, StopError } from "./errors.js";
import type { Call } from "./operation.js";
import { REQUEST_TIMEOUT_MS, Transport } from "./transport.js";

const PULL_WAIT_S = 20;
const MAX_PULL = 100;

/** Runs one operation; what it returns, any JSON value, is the operation's result. */
export type Handler = (call: Call) => unknown;

/** Takes events by their names, with facts. */
export interface Logger {
  info(event: string, facts?: Record<string, unknown>): void;
  warn(event: string, facts?: Record<string, unknown>): void;
}

export interface WorkerOptions {
  /** Of the API; else POP_API_URL, else http://127.0.0.1:8080. */
  url?: string;
  /** An API key or a JWT with the role `pull`; else POP_API_TOKEN. */
  token?: string;
  /** Shown with what it runs; else made of the host's name. */
  pullerId?: string;
  /** Agendas at a time; 8 by default. */
  concurrency?: number;
  /** Seconds that running agendas have when the worker stops; 30 by default. */
  graceS?: number;
  /** JSON lines on standard error by default. */
  logger?: Logger;
}

/** Serves one insight. Register its handlers, then call `run` or `serve`, once. */
export class Worker {
  readonly pullerId: string;
  readonly handlers = new Map<string, Handler>();
  readonly transport: Transport;
  readonly log: Logger;
  private readonly concurrency: number;
  private readonly graceMs: number;
  private readonly running = new Set<Promise<void>>();
  private slotFreed: () => void = () => {};

  constructor(
    readonly insight: string,
    options: WorkerOptions = {},
  ) {
    this.log = options.logger ?? jsonLines;
    this.pullerId = options.pullerId ?? makePullerId();
    this.concurrency = options.concurrency ?? 8;
    this.graceMs = 1_000 * (options.graceS ?? 30);
    const url = options.url ?? process.env["POP_API_URL"] ?? "http://127.0.0.1:8080";
    this.transport = new Transport(url, options.token ?? process.env["POP_API_TOKEN"] ?? "", this.log);
  }

  /** Registers the handler of an operation type; a later one replaces it. */
  handle(type: string, handler: Handler): this {
    this.handlers.set(type, handler);
    return this;
  }

  /** Serves until SIGTERM or SIGINT; see `serve`. A second signal ends the process at once. */
  async run(): Promise<void> {
    const stop = new AbortController();
    const onSignal = (): void => stop.abort();
    process.once("SIGTERM", onSignal).once("SIGINT", onSignal);
    stop.signal.addEventListener("abort", () => {
      process.off("SIGTERM", onSignal).off("SIGINT", onSignal);
    });
    await this.serve(stop.signal);
  }

  /**
   * Pulls and runs agendas until the signal is aborted. Then it takes nothing new, and agendas that
   * run have the grace to end; what still runs then is cancelled, and follows as another attempt.
   *
   * @throws Error if the API refuses to let it pull: the token is unknown, or not for this insight.
   *   Running agendas have the grace then, too.
   */
  async serve(stop: AbortSignal): Promise<void> {
    if (this.handlers.size === 0) throw new Error("register a handler before the worker serves");
    const work = new AbortController();
    const reports = new AbortController();
    const facts = { insight_id: this.insight, puller_id: this.pullerId };
    this.log.info("worker.started", facts);
    try {
      await this.pull(stop, work.signal, reports.signal);
    } finally {
      this.log.info("worker.stopping", facts);
      const stopping = setTimeout(() => {
        work.abort(new StopError("puller_stopping", "puller stopped"));
      }, this.graceMs);
      // Twice: what is cancelled has time to clean up, and its end to be reported.
      const giveUp = setTimeout(() => reports.abort(), this.graceMs + 2 * ABANDON_AFTER_MS);
      await Promise.all(this.running);
      clearTimeout(stopping);
      clearTimeout(giveUp);
      this.log.info("worker.stopped", facts);
    }
  }

  /** Starts agendas, never more than run at once, until it is to stop or is refused. */
  private async pull(stop: AbortSignal, work: AbortSignal, reports: AbortSignal): Promise<void> {
    stop.addEventListener("abort", () => this.slotFreed());
    while (!stop.aborted) {
      const count = Math.min(this.concurrency - this.running.size, MAX_PULL);
      if (count === 0) {
        await new Promise<void>((resolve) => (this.slotFreed = resolve));
        continue;
      }
      try {
        const { agendas } = await this.transport.send(
          stop,
          (signal) =>
            this.transport.client.POST("/v1/insights/{insight_id}/pull", {
              params: { path: { insight_id: this.insight } },
              body: { puller_id: this.pullerId, count, wait_s: PULL_WAIT_S },
              signal,
            }),
          1_000 * PULL_WAIT_S + REQUEST_TIMEOUT_MS,
        );
        for (const one of agendas) this.start(new AgendaAttempt(this, one), work, reports);
      } catch (error) {
        if (error instanceof ProblemError) {
          throw new Error(`may not pull from insight "${this.insight}": ${error.message}`, { cause: error });
        }
        if (!stop.aborted) throw error;
      }
    }
  }

  private start(attempt: AgendaAttempt, work: AbortSignal, reports: AbortSignal): void {
    const running = attempt.run(work, reports).finally(() => {
      this.running.delete(running);
      this.slotFreed();
    });
    this.running.add(running);
  }
}

function makePullerId(): string {
  const host = hostname().replace(/[^A-Za-z0-9._~-]/g, "-").replace(/^[^A-Za-z0-9]+/, "").slice(0, 80);
  return `${host || "worker"}-${process.pid}-${randomBytes(3).toString("hex")}`;
}

const jsonLines: Logger = {
  info: (event, facts) => writeLine("info", event, facts),
  warn: (event, facts) => writeLine("warning", event, facts),
};

function writeLine(level: string, event: string, facts: Record<string, unknown> = {}): void {
  const line = { level, event, ...facts, timestamp: new Date().toISOString() };
  process.stderr.write(`${JSON.stringify(line)}\n`);
}
