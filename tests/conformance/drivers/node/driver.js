// kafkajs as the servant of a test: one JSON request per line, one JSON line for each: {"answer": …} or {"error": "…"}.
// What can be asked stands in tests/conformance/drivers/__init__.py.
"use strict";

process.env.KAFKAJS_NO_PARTITIONER_WARNING = "1";

const readline = require("node:readline");
const { Kafka, CompressionTypes, Partitioners, logLevel } = require("kafkajs");

const PATIENCE_MS = 60_000;
const CODECS = { "": CompressionTypes.None, none: CompressionTypes.None, gzip: CompressionTypes.GZIP };
const ACKS = { "": -1, 0: 0, 1: 1, all: -1 };
const members = new Map();

const client = (r) =>
  new Kafka({
    clientId: "kafkajs",
    brokers: r.servers,
    logLevel: logLevel.NOTHING,
    retry: { initialRetryTime: 50, maxRetryTime: 1000, retries: 60 },
  });

async function withAdmin(r, act) {
  const admin = client(r).admin();
  await admin.connect();
  try {
    return await act(admin);
  } finally {
    await admin.disconnect();
  }
}

async function withProducer(r, options, act) {
  const producer = client(r).producer({ createPartitioner: Partitioners.DefaultPartitioner, ...options });
  await producer.connect();
  try {
    return await act(producer);
  } finally {
    await producer.disconnect();
  }
}

const asMessage = (one) => ({
  key: one.key ?? null,
  value: one.value,
  ...(one.partition >= 0 ? { partition: one.partition } : {}),
  ...(one.timestamp > 0 ? { timestamp: String(one.timestamp) } : {}),
  // A header that comes more than once has an array of values.
  headers: (one.headers ?? []).reduce((all, [name, value]) => {
    all[name] = name in all ? [].concat(all[name], value) : value;
    return all;
  }, {}),
});

function asRecord(partition, message) {
  const headers = [];
  for (const [name, value] of Object.entries(message.headers ?? {}))
    for (const each of Array.isArray(value) ? value : [value]) headers.push([name, each.toString()]);
  return {
    partition,
    offset: Number(message.offset),
    key: message.key === null ? null : message.key.toString(),
    value: message.value.toString(),
    headers,
    timestamp: Number(message.timestamp),
  };
}

function within(promise, what) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what} did not come within ${PATIENCE_MS} ms`)), PATIENCE_MS);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

// There is no reading without a group: a new one begins where it is told to.
async function read(r) {
  const groupId = `read-${process.pid}-${Math.random()}`;
  const consumer = client(r).consumer({ groupId, readUncommitted: !r.committed, maxWaitTimeInMs: 100 });
  await consumer.connect();
  await consumer.subscribe({ topic: r.topic, fromBeginning: true });
  const found = [];
  try {
    const complete = new Promise((resolve) => {
      consumer.run({
        autoCommit: false,
        eachMessage: async ({ partition, message }) => {
          if (partition === r.partition && Number(message.offset) >= r.offset && found.length < r.count)
            found.push(asRecord(partition, message));
          if (found.length >= r.count) resolve();
        },
      });
      consumer.seek({ topic: r.topic, partition: r.partition, offset: String(r.offset) });
    });
    await within(complete, `${r.count} records`);
  } finally {
    await consumer.disconnect();
  }
  return found;
}

async function pipe(r) {
  const consumer = client(r).consumer({ groupId: r.group, readUncommitted: false, maxWaitTimeInMs: 100 });
  await consumer.connect();
  await consumer.subscribe({ topic: r.topic, fromBeginning: true });
  try {
    return await withProducer(r, { transactionalId: r.id, idempotent: true, maxInFlightRequests: 1 }, async (producer) => {
      let count = 0;
      const complete = new Promise((resolve, reject) => {
        const handle = async ({ batch }) => {
          const transaction = await producer.transaction();
          const messages = batch.messages.map((message) => ({ value: `${message.value}!` }));
          await transaction.send({ topic: r.target, messages });
          const next = String(Number(batch.lastOffset()) + 1);
          const partitions = [{ partition: batch.partition, offset: next }];
          await transaction.sendOffsets({ consumerGroupId: r.group, topics: [{ topic: r.topic, partitions }] });
          await transaction.commit();
          count += messages.length;
          if (count >= r.count) resolve();
        };
        consumer.run({ autoCommit: false, eachBatch: (payload) => handle(payload).catch(reject) });
      });
      await within(complete, `${r.count} records`);
    });
  } finally {
    await consumer.disconnect();
  }
}

const operations = {
  topic_create: (r) =>
    withAdmin(r, async (admin) => {
      const topics = [{ topic: r.topic, numPartitions: r.partitions, replicationFactor: 1 }];
      // Its way to tell of TOPIC_ALREADY_EXISTS; it throws all other errors.
      if (!(await admin.createTopics({ topics }))) throw new Error(`${r.topic} already exists`);
    }),
  topic_grow: (r) =>
    withAdmin(r, (admin) => admin.createPartitions({ topicPartitions: [{ topic: r.topic, count: r.partitions }] })),
  topic_partitions: (r) =>
    withAdmin(r, async (admin) => {
      const { topics } = await admin.fetchTopicMetadata({ topics: [r.topic] });
      return topics[0].partitions.length;
    }),
  topic_delete: (r) => withAdmin(r, (admin) => admin.deleteTopics({ topics: [r.topic] })),
  offset_at: (r) =>
    withAdmin(r, async (admin) => {
      const offsets = await admin.fetchTopicOffsetsByTimestamp(r.topic, r.time);
      return Number(offsets.find(({ partition }) => partition === r.partition).offset);
    }),
  produce: (r) =>
    withProducer(r, {}, async (producer) => {
      const messages = r.records.map(asMessage);
      await producer.send({ topic: r.topic, acks: ACKS[r.acks ?? ""], compression: CODECS[r.codec ?? ""], messages });
    }),
  read,
  pipe,
  transact: (r) =>
    withProducer(r, { transactionalId: r.id, idempotent: true, maxInFlightRequests: 1 }, async (producer) => {
      const transaction = await producer.transaction();
      await transaction.send({ topic: r.topic, messages: r.values.map((value) => ({ value })) });
      await (r.commit ? transaction.commit() : transaction.abort());
    }),
  join: async (r) => {
    const consumer = client(r).consumer({ groupId: r.group, heartbeatInterval: 200, maxWaitTimeInMs: 100 });
    const member = { consumer, values: [] };
    members.set(r.member, member);
    await consumer.connect();
    await consumer.subscribe({ topic: r.topic, fromBeginning: true });
    await consumer.run({ eachMessage: async ({ message }) => void member.values.push(message.value.toString()) });
  },
  poll: async (r) => {
    const member = members.get(r.member);
    if (member.values.length === 0) await new Promise((resolve) => setTimeout(resolve, 100));
    return member.values.splice(0);
  },
  leave: async (r) => {
    const { consumer } = members.get(r.member);
    members.delete(r.member);
    // Commits what was handled, and leaves the group.
    await consumer.disconnect();
  },
};

async function serve() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    let reply;
    try {
      const r = JSON.parse(line);
      if (!(r.op in operations)) throw new Error(`kafkajs does not know ${r.op}`);
      reply = { answer: (await operations[r.op](r)) ?? null };
    } catch (error) {
      reply = { error: String(error.message ?? error) };
    }
    process.stdout.write(`${JSON.stringify(reply)}\n`);
  }
}

serve().then(() => process.exit(0));
