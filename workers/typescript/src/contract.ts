/** The worker that the tests of the project hold to the contract of workers. */
import { appendFileSync, existsSync, readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

import { FinalError, NotYet, StopError, Worker } from "./index.js";
import type { Call, Operation } from "./index.js";

const { CONTRACT_INSIGHT = "", CONTRACT_PULLER_ID = "", CONTRACT_GRACE_S } = process.env;

interface Files {
  log: string;
  until: string;
}

async function hold(call: Call): Promise<unknown> {
  const { log, until } = call.payload as Files;
  appendFileSync(log, `begun ${call.attempt}\n`);
  call.report(40, "page 2 of 5");
  call.note("it holds", "held", { page: 2 });
  try {
    while (!existsSync(until)) await sleep(20, undefined, { signal: call.signal });
  } catch (error) {
    const stop: unknown = call.signal.reason;
    if (stop instanceof StopError) appendFileSync(log, `stopped ${stop.reason}\n`);
    throw error;
  }
  return { held: call.attempt };
}

function flaky({ payload, attempt, tries }: Call): unknown {
  const { attempts = 0, tries: failing = 0 } = payload as { attempts?: number; tries?: number };
  if (attempt <= attempts || tries <= failing) throw new Error("the service is away");
  return { attempt, tries };
}

async function handOver(call: Call): Promise<never> {
  const token = await call.completionToken(60);
  appendFileSync((call.payload as Files).log, `${token}\n`);
  throw new NotYet(0, "", { kind: "completion", completion_token: token });
}

await new Worker(CONTRACT_INSIGHT, {
  pullerId: CONTRACT_PULLER_ID,
  concurrency: 4,
  graceS: Number(CONTRACT_GRACE_S),
})
  .handle("echo", ({ payload }) => payload)
  .handle("count", ({ payload }) => {
    const { log } = payload as Files;
    appendFileSync(log, "ran\n");
    return readFileSync(log, "utf8").split("\n").length - 1;
  })
  .handle("hold", hold)
  .handle("flaky", flaky)
  .handle("refuse", () => {
    throw new FinalError("no such codec");
  })
  .handle("large", () => "x".repeat(300_000))
  .handle("scan", async (call) => {
    const { operations } = call.payload as { operations: Operation[] };
    await call.append(operations);
    return operations.length;
  })
  .handle("later", ({ payload, attempt }) => {
    if (!existsSync((payload as Files).until)) throw new NotYet(1, "the file is not there");
    return { attempt };
  })
  .handle("hand-over", handOver)
  .run();
