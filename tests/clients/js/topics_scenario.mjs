// What the client of topics and queues does against a real server. Node and pages run it alike: `scenario(module, url)`
// resolves to what it saw, and throws if anything is wrong.

function equal(found, expected) {
  const [left, right] = [JSON.stringify(found), JSON.stringify(expected)];
  if (left !== right) throw new Error(`${left} is not ${right}`);
}

async function failed(promise) {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  throw new Error("it did not fail");
}

async function all(iterator) {
  const found = [];
  for await (const each of iterator) found.push(each);
  return found;
}

export async function scenario({ Client, StrandlineError }, url, name) {
  const client = new Client(url, { retry: { firstMs: 20, maxMs: 200, forMs: 30_000 } });
  const orders = client.topic(`${name}:orders`);

  // Writing and reading.
  const first = await orders.write({ item: "book" }, { tag: "ann", node: "till", meta: { n: 1 } });
  equal([first.first_seq, first.created], [1, true]);
  await orders.writeMany([{ data: "two" }, { data: 3, tag: "bob" }, { data: null, tag: "ann" }]);
  const again = await orders.write("once", { idempotencyKey: "k" });
  equal((await orders.write("once", { idempotencyKey: "k" })).deduped, true);
  equal(again.last_seq, 5);
  const records = await all(orders.read({ limit: 2 }));
  equal(records.map(({ seq, data, tag }) => [seq, data, tag]), [
    [1, { item: "book" }, "ann"],
    [2, "two", null],
    [3, 3, "bob"],
    [4, null, "ann"],
    [5, "once", null],
  ]);
  equal([records[0].node, records[0].meta, records[0].time.getTime() === records[0].ts], ["till", { n: 1 }, true]);
  equal((await all(orders.read({ match: "ann" }))).map(({ seq }) => seq), [1, 4]);
  equal((await all(orders.read({ latest: true, match: "ann" }))).map(({ seq }) => seq), [4]);
  equal((await all(client.topics({ prefix: name }))).map(({ topic }) => topic), [orders.name]);

  // Following, until it is stopped.
  const stop = new AbortController();
  const live = [];
  for await (const { data } of orders.tail({ after: 4, signal: stop.signal })) {
    live.push(data);
    if (live.length === 1) await orders.write("live");
    else stop.abort();
  }
  equal(live, ["once", "live"]);

  // Consumers.
  const billing = orders.consumer("billing");
  equal((await all(billing.batches({ size: 4 }))).map((batch) => batch.length), [4, 2]);
  equal([(await billing.position()).seq, (await billing.position()).lag], [6, 0]);
  equal(await all(billing.batches()), []);
  await billing.commit(5);
  equal((await all(billing.batches()))[0][0].data, "live");

  // Loss.
  const recent = client.topic(`${name}-recent`);
  await recent.configure({ cap_records: 2 });
  await recent.writeMany([1, 2, 3].map((data) => ({ data })));
  equal((await failed(all(recent.read()))).code, "RECORDS_LOST");
  const lost = [];
  equal((await all(recent.read({ onLoss: (each) => lost.push(each.gap_to) }))).map(({ data }) => data), [2, 3]);
  equal(lost, [1]);

  // Errors.
  const missing = await failed(client.topic(`${name}-missing`).state());
  equal([missing instanceof StrandlineError, missing.code, missing.status], [true, "topic_not_found", 404]);
  let wrong = null;
  try {
    orders.write(undefined);
  } catch (error) {
    wrong = error;
  }
  equal(wrong instanceof TypeError, true);

  // Queues.
  const emails = client.queue(`${name}-emails`, { node: "w1" });
  await emails.configure({ max_deliveries: 2, dead_letter: `${name}-dead`, retry_delay_ms: 1 });
  await emails.enqueueMany([{ data: { to: "ann" } }, { data: { to: "nowhere" } }]);
  await emails.enqueue({ to: "bob" }, { priority: 10, tag: "vip" });
  await emails.enqueue({ to: "later" }, { delayMs: 3_600_000 });
  const [bob] = await emails.claim(1, { leaseMs: 60_000 });
  equal([bob.data, bob.priority, bob.tag, bob.deliveries, bob.failures], [{ to: "bob" }, 10, "vip", 1, []]);
  equal((await emails.extend(bob, { leaseMs: 120_000 })).extended, 1);
  equal((await emails.nack(bob, { delayMs: 0, reason: new RangeError("too far") })).nacked, 1);
  const [bobAgain] = await emails.claim();
  equal([bobAgain.deliveries, bobAgain.failures[0].reason.type], [2, "RangeError"]);
  equal((await emails.ack(bobAgain)).acked, 1);

  const done = [];
  const told = [];
  const worker = emails.worker(
    async ({ data }) => {
      if (data.to === "nowhere") throw new Error(`unknown address ${"ü".repeat(5000)}`);
      done.push(data.to);
    },
    { concurrency: 2, pollMs: 20, failed: (job) => told.push(job.deliveries) },
  );
  const enough = new AbortController();
  const running = worker.run({ signal: enough.signal });
  while ((await emails.counters()).dead_lettered < 1) await new Promise((resolve) => setTimeout(resolve, 10));
  enough.abort();
  await running;
  equal([done, told, worker.done, worker.failures], [["ann"], [1, 2], 1, 2]);
  equal((await emails.counters()).delayed, 1);
  equal((await all(client.topic(`${name}-dead`).read())).map(({ data }) => data.to), ["nowhere"]);
  const jobs = client.queue(`${name}-jobs`);
  await jobs.enqueueMany(Array.from({ length: 20 }, (_, n) => ({ data: n })));
  const seen = [];
  await jobs.worker(({ data }) => seen.push(data), { concurrency: 5, pollMs: 20 }).run({ untilEmpty: true });
  equal(seen.sort((a, b) => a - b), Array.from({ length: 20 }, (_, n) => n));
  equal((await failed(client.queue(`${name}-none`).worker(() => {}).run())).code, "topic_not_found");
  return "all is well";
}
