import type { components } from "./api.gen.js";
import { FinalError, NotYet, StopError, codeOf, isFinal, reasonOf } from "./errors.js";
import { MAX_DIAGNOSTICS, OperationRun, brief, encodeResult } from "./operation.js";
import type { Call, Operation } from "./operation.js";
import { outputOf, resolve } from "./references.js";
import { Reporter } from "./reporting.js";
import { pause } from "./transport.js";
import type { Worker } from "./worker.js";

type Schemas = components["schemas"];

/** That a cancelled handler has to clean up. */
export const ABANDON_AFTER_MS = 5_000;
const PARALLEL_OPERATIONS = 64;
const PRIOR_EVERY_MS = 1_000;

interface Failure {
  message: string;
  isFinal: boolean;
  diagnostic?: Schemas["DiagnosticReport"];
}

/** Runs the operations of one agenda that was pulled. */
export class AgendaAttempt {
  private readonly operations: OperationRun[] = [];
  private readonly names = new Map<string, unknown>();
  private readonly failures: Failure[] = [];
  private readonly waits: Schemas["WaitReport"][] = [];
  private readonly spentS: Record<string, number> = {};
  private readonly reporter: Reporter;
  /** Aborted once something failed: nothing more is begun. */
  private readonly failed = new AbortController();
  private readonly abort = new AbortController();
  private active = 0;
  /** An operation ended, or others were added. */
  private wake: () => void = () => {};

  constructor(
    private readonly worker: Worker,
    private readonly pulled: Schemas["PulledAgenda"],
  ) {
    this.names.set("pop.agendaId", pulled.agenda_id).set("pop.customerId", pulled.customer_id);
    this.reporter = new Reporter(worker, pulled, this.operations);
  }

  /**
   * Takes the attempt to its end and reports it; never rejects. Handlers are cancelled with `work`,
   * and nothing is sent any more once `reports` is aborted.
   */
  async run(work: AbortSignal, reports: AbortSignal): Promise<void> {
    const facts = { agenda_id: this.pulled.agenda_id, attempt: this.pulled.attempt };
    const signal = AbortSignal.any([work, this.abort.signal]);
    const hasEnded = new AbortController();
    const reporting = this.reporter.keepReporting(AbortSignal.any([reports, hasEnded.signal]), this.abort);
    await this.readPrior(signal).catch((error: unknown) => {
      this.fail(null, new Error(`the results of earlier attempts cannot be read: ${reasonOf(error)}`));
    });
    await this.runOperations(signal);
    hasEnded.abort();
    await reporting;
    if (signal.aborted && isOutdated(signal.reason)) {
      this.worker.log.info("agenda.lease_lost", { ...facts, reason: reasonOf(signal.reason) });
      return;
    }
    const end = this.end(signal);
    try {
      await this.reporter.complete(reports, end);
      this.worker.log.info(`agenda.${end.outcome}`, { ...facts, message: end.message });
    } catch (error) {
      const reason = reasonOf(error);
      this.worker.log.warn("agenda.end_not_reported", { ...facts, outcome: end.outcome, reason });
    }
  }

  /** Takes over what earlier attempts left, waiting until it can be read. */
  private async readPrior(signal: AbortSignal): Promise<void> {
    let progress = this.pulled.progress;
    while (this.pulled.attempt > 1 && (progress === null || progress.attempt < this.pulled.attempt)) {
      if (progress !== null) await pause(PRIOR_EVERY_MS, signal);
      progress = await this.worker.transport.send(signal, (limited) =>
        this.worker.transport.client.GET("/v1/agendas/{agenda_id}/progress", {
          params: { path: { agenda_id: this.pulled.agenda_id } },
          signal: limited,
        }),
      );
    }
    this.add(this.pulled.agenda.operations);
    if (progress === null) return;
    this.add(progress.appended.map((one) => one.operation as Operation));
    for (const view of progress.operations) {
      const run = this.operations.find((one) => one.name === view.name);
      if (run !== undefined) this.takeOver(run, view, progress.attempt);
    }
  }

  /** Sets one operation to what earlier attempts, or decisions from outside, left of it. */
  private takeOver(run: OperationRun, view: Schemas["OperationView"], attempt: number): void {
    run.prior = view.prior;
    if (view.state === "succeeded") {
      run.state = "succeeded";
      run.isDone = true;
      this.names.set(outputOf(run.name), view.result);
    } else if (view.state === "failed" && attempt === this.pulled.attempt) {
      const code = view.diagnostics.at(-1)?.code;
      const mayHelp = code === "operation_retryable" || code === "hand_over_timed_out";
      this.fail(run, mayHelp ? new Error(view.message) : new FinalError(view.message));
    } else if (view.wait?.kind === "completion") {
      // Handed over, and not completed: its handler is not called again.
      this.defer(run, new NotYet(0, "it is completed elsewhere", { kind: "completion" }));
    }
  }

  /** Takes operations that are new to the agenda; of one name, ignoring case, the first counts. */
  private add(operations: readonly Operation[]): void {
    const taken = new Set(this.operations.map((one) => one.name.toLowerCase()));
    for (const operation of operations) {
      if (taken.has(operation.name.toLowerCase())) continue;
      taken.add(operation.name.toLowerCase());
      this.operations.push(new OperationRun(operation));
    }
    this.wake();
  }

  /** Returns once nothing runs and nothing more can be begun. */
  private async runOperations(signal: AbortSignal): Promise<void> {
    for (;;) {
      const woken = new Promise<void>((resolve) => (this.wake = resolve));
      this.begin(signal);
      if (this.active === 0) return;
      await woken;
    }
  }

  /** Starts what is ready, unless something failed or the attempt is cancelled. */
  private begin(signal: AbortSignal): void {
    for (const run of this.operations) {
      const { type } = run.operation;
      if (run.isDone || this.worker.handlers.has(type)) continue;
      const remedy = "register one, or correct the type or the insight's mappers";
      this.fail(run, new FinalError(`operation type "${type}" has no handler here; ${remedy}`));
    }
    const succeeded = new Set(this.operations.filter((one) => one.state === "succeeded").map((one) => one.name));
    for (const run of this.operations) {
      if (this.failures.length > 0 || signal.aborted || this.active >= PARALLEL_OPERATIONS) return;
      const isReady = [...run.dependsOn].every((name) => succeeded.has(name));
      if (run.isDone || run.state !== "waiting" || !isReady) continue;
      run.start();
      this.reporter.markChanged(run);
      this.active++;
      void this.runOperation(run, signal);
    }
  }

  private async runOperation(run: OperationRun, signal: AbortSignal): Promise<void> {
    try {
      run.result = await this.tryUntilDone(run, signal);
      run.end("succeeded");
      this.names.set(outputOf(run.name), run.result === null ? null : JSON.parse(run.result));
    } catch (error) {
      if (signal.aborted) run.end("failed", "stopped before it ended");
      else if (error instanceof NotYet) this.defer(run, error);
      else this.fail(run, error);
    }
    this.reporter.markChanged(run);
    this.active--;
    this.wake();
  }

  /** Tries an operation as often as it allows within one attempt. */
  private async tryUntilDone(run: OperationRun, signal: AbortSignal): Promise<string | null> {
    const { type } = run.operation;
    for (;;) {
      const began = performance.now();
      const outcome = await this.try(run, signal);
      this.spentS[type] = (this.spentS[type] ?? 0) + (performance.now() - began) / 1_000;
      if (!("error" in outcome)) return outcome.result;
      const { error, isAbandoned } = outcome;
      if (error instanceof NotYet || signal.aborted || run.maxTries === 1) throw error;
      run.note(reasonOf(error), codeOf(error), { try: run.tries, max_attempts: run.maxTries });
      if (run.tries >= run.maxTries || isFinal(error) || isAbandoned) throw error;
      await pause(run.pauseMs, AbortSignal.any([signal, this.failed.signal])).catch(() => {
        throw error;
      });
      run.tries++;
      run.percent = 0;
      run.message = "";
      this.reporter.markChanged(run);
    }
  }

  private async try(
    run: OperationRun,
    signal: AbortSignal,
  ): Promise<{ result: string | null } | { error: unknown; isAbandoned: boolean }> {
    const limitS = run.operation.timeout_s ?? null;
    const limit = new AbortController();
    const timer =
      limitS === null
        ? undefined
        : setTimeout(
            () => limit.abort(new StopError("timeout", `timeout_s = ${limitS}: it ran longer`)),
            Math.min(1_000 * limitS, 2 ** 31 - 1),
          );
    const both = AbortSignal.any([signal, limit.signal]);
    let isAbandoned = false;
    try {
      const call = this.callOf(run, both);
      const handler = this.worker.handlers.get(run.operation.type);
      const ended = (async () => handler?.(call))();
      isAbandoned = await outlives(ended, both);
      if (isAbandoned || limit.signal.aborted) throw both.reason;
      return { result: encodeResult(await ended) };
    } catch (error) {
      return { error: limit.signal.aborted ? limit.signal.reason : error, isAbandoned };
    } finally {
      clearTimeout(timer);
    }
  }

  private callOf(run: OperationRun, signal: AbortSignal): Call {
    const { tries, operation } = run;
    const change = (apply: () => void): void => {
      if (run.state !== "running" || run.tries !== tries) return;
      apply();
      this.reporter.markChanged(run);
    };
    return {
      agendaId: this.pulled.agenda_id,
      customerId: this.pulled.customer_id,
      insightId: this.pulled.insight_id,
      linkId: this.pulled.agenda.link_id ?? null,
      attempt: this.pulled.attempt,
      tries,
      name: run.name,
      type: operation.type,
      params: operation.params ?? {},
      payload: this.payloadOf(operation),
      prior: run.prior,
      signal,
      report: (percent, message = "") =>
        change(() => {
          run.percent = Math.min(100, Math.max(0, percent));
          run.message = brief(message);
        }),
      note: (message, code, detail) => change(() => run.note(message, code, detail)),
      append: async (operations) => {
        await this.reporter.append(signal, run.name, operations);
        this.add(operations);
      },
      completionToken: (withinS) => this.reporter.completionToken(signal, run.name, withinS),
    };
  }

  private payloadOf(operation: Operation): unknown {
    try {
      return resolve(operation.payload ?? null, new Map([...this.names, ["pop.operationName", operation.name]]));
    } catch (error) {
      throw new FinalError(reasonOf(error));
    }
  }

  /** Lets an operation wait for something, without a runner. */
  private defer(run: OperationRun, notYet: NotYet): void {
    run.end("waiting", notYet.message);
    this.reporter.markChanged(run);
    this.waits.push({
      name: run.name,
      message: brief(notYet.message),
      ...notYet.ended,
      ...(notYet.afterS > 0 ? { recheck_s: Math.min(Math.max(notYet.afterS, 1), 31_622_400) } : {}),
    });
  }

  /** Takes note of a failure; of no operation if it is null. */
  private fail(run: OperationRun | null, error: unknown): void {
    const reason = reasonOf(error);
    this.failed.abort();
    if (run === null) {
      this.failures.push({ message: reason, isFinal: isFinal(error) });
      return;
    }
    run.end("failed", reason);
    this.reporter.markChanged(run);
    this.failures.push({
      message: `operation '${run.name}' failed: ${reason}`,
      isFinal: isFinal(error),
      diagnostic: { message: brief(reason, 500), code: codeOf(error), detail: { operation: run.name } },
    });
  }

  /** How the attempt ended. */
  private end(signal: AbortSignal): Omit<Schemas["Completion"], "puller_id" | "lease_token"> {
    const spent = { spent_s: this.spentS as Schemas["Completion"]["spent_s"] & object };
    const isWhole = this.operations.every((one) => one.state === "succeeded");
    if (signal.aborted && isWanted(signal.reason)) return { outcome: "stopped", ...spent };
    if (signal.aborted && !isWhole) this.fail(null, signal.reason);
    else if (this.failures.length === 0 && this.waits.length === 0 && !isWhole) this.failStuck();
    const [first] = this.failures;
    if (first !== undefined) {
      return {
        outcome: "failed",
        message: brief(first.message),
        retryable: !this.failures.some((one) => one.isFinal),
        diagnostics: this.failures.flatMap((one) => one.diagnostic ?? []).slice(0, MAX_DIAGNOSTICS),
        ...spent,
      };
    }
    if (this.waits.length > 0) return { outcome: "not_yet", waits: this.waits, ...spent };
    return { outcome: "succeeded", ...spent };
  }

  /** Ends what will never run: what it waits for was appended once, and is no more. */
  private failStuck(): void {
    const known = new Set(this.operations.map((one) => one.name));
    for (const run of this.operations.filter((one) => !one.isDone)) {
      const missing = [...run.dependsOn].filter((name) => !known.has(name)).sort().join(", ");
      const what = missing === "" ? "one another" : missing;
      this.fail(run, new FinalError(`it waits for ${what}, which nothing has appended; rerun all operations`));
    }
  }
}

function isOutdated(reason: unknown): boolean {
  return reason instanceof StopError && reason.reason === "outdated";
}

/** Whether the agenda itself is to stop. */
function isWanted(reason: unknown): boolean {
  return reason instanceof StopError && (reason.reason === "cancelled" || reason.reason === "expired");
}

/** Waits for a handler's end; true if it goes on for too long after it was told to stop. */
async function outlives(ended: Promise<unknown>, signal: AbortSignal): Promise<boolean> {
  const settled = ended.then(
    () => false,
    () => false,
  );
  let timer: NodeJS.Timeout | undefined;
  let onAbort: () => void = () => {};
  const abandoned = new Promise<boolean>((resolve) => {
    onAbort = () => (timer = setTimeout(() => resolve(true), ABANDON_AFTER_MS));
    if (signal.aborted) onAbort();
    else signal.addEventListener("abort", onAbort, { once: true });
  });
  try {
    return await Promise.race([settled, abandoned]);
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", onAbort);
  }
}
