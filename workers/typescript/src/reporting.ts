import type { components } from "./api.gen.js";
import { FinalError, ProblemError, StopError, reasonOf } from "./errors.js";
import { brief } from "./operation.js";
import type { Operation, OperationRun } from "./operation.js";
import { pause } from "./transport.js";
import type { Worker } from "./worker.js";

type Schemas = components["schemas"];

/** At most so often. */
const REPORT_EVERY_MS = 500;
/** Of results in one request. */
const MAX_REPORT_BYTES = 500_000;

/** Whether the attempt is over, or its worker may report on it no more. */
function isLeaseLost(reason: unknown): boolean {
  return reason instanceof ProblemError && [401, 403, 404, 409].includes(reason.status);
}

/** Reports on one attempt, and renews its lease. */
export class Reporter {
  private changed: () => void = () => {};

  constructor(
    private readonly worker: Worker,
    private readonly pulled: Schemas["PulledAgenda"],
    private readonly operations: readonly OperationRun[],
  ) {}

  /** Has an operation reported. */
  markChanged(run: OperationRun): void {
    run.hasChanged = true;
    this.changed();
  }

  /**
   * Reports what changes, and renews the lease, until the signal is aborted; never rejects. It
   * aborts the attempt if the API wants it to stop, or refuses its reports.
   */
  async keepReporting(signal: AbortSignal, attempt: AbortController): Promise<void> {
    const renewMs = this.pulled.lease_ms / 3;
    try {
      for (;;) {
        if (await this.changesWithin(renewMs, signal)) {
          await pause(Math.min(REPORT_EVERY_MS, renewMs), signal); // for what changes meanwhile
        }
        const [changed] = this.takeChanges();
        const { stop } = await this.sendProgress(signal, changed);
        if (stop !== null) {
          attempt.abort(new StopError(stop, `the agenda is ${stop}`));
          return;
        }
      }
    } catch (error) {
      if (signal.aborted) return;
      attempt.abort(
        isLeaseLost(error) ? new StopError("outdated", `the lease is lost: ${reasonOf(error)}`) : error,
      );
    }
  }

  /**
   * Adds operations to the agenda, for the one of that name.
   *
   * @throws FinalError if the API refuses them.
   */
  async append(signal: AbortSignal, by: string, operations: readonly Operation[]): Promise<void> {
    try {
      await this.sendProgress(signal, [], { by, operations: [...operations] });
    } catch (error) {
      throw error instanceof ProblemError ? new FinalError(error.message, { cause: error }) : error;
    }
  }

  async completionToken(signal: AbortSignal, operation: string, withinS: number): Promise<string> {
    const { token } = await this.worker.transport.send(signal, (limited) =>
      this.worker.transport.client.POST("/v1/completion-tokens", {
        body: { lease_token: this.pulled.lease_token, operation, within_s: withinS },
        signal: limited,
      }),
    );
    return token;
  }

  /** Reports the end, with all that was not reported yet. */
  async complete(
    signal: AbortSignal,
    end: Omit<Schemas["Completion"], "puller_id" | "lease_token">,
  ): Promise<void> {
    let [changed, isAll] = this.takeChanges();
    while (!isAll) {
      await this.sendProgress(signal, changed);
      [changed, isAll] = this.takeChanges();
    }
    try {
      await this.sendEnd(signal, { ...end, operations: changed.map((one) => one.report()) });
    } catch (error) {
      if (!(error instanceof ProblemError) || isLeaseLost(error)) throw error;
      // The lease is not kept for an end that cannot be recorded.
      const message = brief(`the end was refused: ${error.message}`);
      await this.sendEnd(signal, { outcome: "failed", message, retryable: true });
    }
  }

  private async sendEnd(
    signal: AbortSignal,
    end: Omit<Schemas["Completion"], "puller_id" | "lease_token">,
  ): Promise<void> {
    await this.worker.transport.send(signal, (limited) =>
      this.worker.transport.client.POST("/v1/agendas/{agenda_id}/attempts/{attempt}/complete", {
        ...this.path,
        body: { ...this.sender, ...end },
        signal: limited,
      }),
    );
  }

  /**
   * Reports operations, or appends others; with neither it renews the lease alone. What could not
   * be sent counts as not reported.
   */
  private async sendProgress(
    signal: AbortSignal,
    changed: readonly OperationRun[],
    append?: Schemas["AppendRequest"],
  ): Promise<Schemas["ReportAcknowledgement"]> {
    const { client } = this.worker.transport;
    const body = { ...this.sender, operations: changed.map((one) => one.report()), append: append ?? null };
    try {
      return await this.worker.transport.send(signal, (limited) =>
        changed.length > 0 || append !== undefined
          ? client.POST("/v1/agendas/{agenda_id}/attempts/{attempt}/progress", {
              ...this.path,
              body,
              signal: limited,
            })
          : client.POST("/v1/agendas/{agenda_id}/attempts/{attempt}/heartbeat", {
              ...this.path,
              body: this.sender,
              signal: limited,
            }),
      );
    } catch (error) {
      for (const one of changed) this.markChanged(one);
      throw error;
    }
  }

  private get path() {
    return { params: { path: { agenda_id: this.pulled.agenda_id, attempt: this.pulled.attempt } } };
  }

  private get sender() {
    return { puller_id: this.worker.pullerId, lease_token: this.pulled.lease_token };
  }

  /** Operations to report, as many as one request holds, and whether that is all. */
  private takeChanges(): [changed: OperationRun[], isAll: boolean] {
    const changed: OperationRun[] = [];
    let bytes = 0;
    for (const one of this.operations) {
      if (!one.hasChanged) continue;
      bytes += Buffer.byteLength(one.result ?? "") + 4 * one.message.length + 1_000;
      if (changed.length > 0 && bytes > MAX_REPORT_BYTES) return [changed, false];
      one.hasChanged = false;
      changed.push(one);
    }
    return [changed, true];
  }

  /** Waits for something to report, so long at most; whether there is something. */
  private async changesWithin(ms: number, signal: AbortSignal): Promise<boolean> {
    if (this.operations.some((one) => one.hasChanged)) return true;
    const woken = new AbortController();
    this.changed = () => woken.abort();
    await pause(ms, AbortSignal.any([signal, woken.signal])).catch(() => signal.throwIfAborted());
    return woken.signal.aborted;
  }
}
