// What a program may write with topics and queues, and what it may not: the type checker reads this, nothing runs it.

import { Client, type Job, type Record, StrandlineError } from "../../../clients/js/topics.js";

interface Order {
  item: string;
  cents: number;
}

export async function use(): Promise<void> {
  const client = new Client("http://127.0.0.1:4000", { token: "secret", retry: { forMs: 1000 } });
  new Client(["http://127.0.0.1:4000", new URL("http://127.0.0.1:4001")]);
  const orders = client.topic<Order>("orders");
  const written = await orders.write({ item: "book", cents: 1250 }, { tag: "ann" });
  const first: number = written.first_seq;
  await orders.writeMany([{ data: { item: "pen", cents: 180 }, tag: "bob" }], { config: { durability: "fsync" } });
  for await (const record of orders.read({ after: first, match: ["tag", "Glob", "a*"] })) {
    const seen: Record<Order> = record;
    console.log(seen.time.toISOString(), seen.data.item.toUpperCase());
  }
  const state = await orders.state();
  console.log(state.head_seq, state.config.durability, state.queue?.ready);
  for await (const batch of orders.consumer("billing").batches({ size: 10 })) console.log(batch[0]?.data.cents);
  // @ts-expect-error an order has cents
  await orders.write({ item: "book" });
  // @ts-expect-error there is no such durability
  await orders.configure({ durability: "none" });
  // @ts-expect-error the number of records is called limit
  await orders.diff({ size: 10 });

  const emails = client.queue<{ to: string }>("emails", { node: "w1" });
  await emails.configure({ max_deliveries: 5, dead_letter: "emails:dead" });
  await emails.enqueue({ to: "ann" }, { priority: 10, delayMs: 1000 });
  const worker = emails.worker((job: Job<{ to: string }>) => console.log(job.data.to, job.failures.length), {
    concurrency: 4,
  });
  await worker.run({ untilEmpty: true, signal: AbortSignal.timeout(1000) });
  // @ts-expect-error a queue is always a queue
  await emails.configure({ type: "log" });
  try {
    await emails.ack(...(await emails.claim(10)));
  } catch (error) {
    if (error instanceof StrandlineError) console.log(error.code, error.status);
  }
}
