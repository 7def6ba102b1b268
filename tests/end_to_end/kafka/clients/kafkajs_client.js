// kafkajs does one deed: node kafkajs_client.js SERVERS DEED TOPIC [...], as programs.py says.
const { readFileSync } = require('fs')
const { Kafka, Partitioners, logLevel } = require('kafkajs')

const [servers, deed, topic, ...rest] = process.argv.slice(2)
const kafka = new Kafka({ brokers: servers.split(','), clientId: 'matrix', logLevel: logLevel.ERROR })
const values = () => readFileSync(0, 'utf8').split('\n').slice(0, -1)
const messages = found => found.map(value => ({ value, partition: 0 }))

async function produce(settings) {
  const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner, ...settings })
  await producer.connect()
  await producer.send({ topic, acks: -1, messages: messages(values()) })
  await producer.disconnect()
}

async function consume(group, count) {
  const consumer = kafka.consumer({ groupId: group })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  const found = []
  await new Promise((done, fail) => {
    consumer.on(consumer.events.CRASH, event => fail(event.payload.error))
    const eachMessage = async ({ partition, message }) => {
      if (found.length === count) return
      found.push(message.value.toString())
      if (found.length < count) return
      await consumer.commitOffsets([{ topic, partition, offset: `${Number(message.offset) + 1}` }])
      done()
    }
    consumer.run({ autoCommit: false, eachMessage }).catch(fail)
  })
  await consumer.disconnect()
  return found
}

async function since(timeMs) {
  const admin = kafka.admin()
  await admin.connect()
  const [{ offset }] = (await admin.fetchTopicOffsetsByTimestamp(topic, timeMs)).filter(at => at.partition === 0)
  await admin.disconnect()
  const consumer = kafka.consumer({ groupId: 'seekers-of-kafkajs' })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  const found = await new Promise((done, fail) => {
    consumer.on(consumer.events.CRASH, event => fail(event.payload.error))
    const eachMessage = async ({ message }) => {
      if (BigInt(message.offset) >= BigInt(offset)) done(message.value.toString())
    }
    consumer.run({ autoCommit: false, eachMessage }).catch(fail)
    consumer.seek({ topic, partition: 0, offset })
  })
  await consumer.disconnect()
  return [found]
}

async function transact(aborted) {
  const all = values()
  const producer = kafka.producer({
    transactionalId: `kafkajs-${topic}`,
    maxInFlightRequests: 1,
    idempotent: true,
    createPartitioner: Partitioners.DefaultPartitioner,
  })
  await producer.connect()
  const first = await producer.transaction()
  await first.send({ topic, acks: -1, messages: messages(all.slice(0, aborted)) })
  await first.abort()
  const second = await producer.transaction()
  await second.send({ topic, acks: -1, messages: messages(all.slice(aborted)) })
  await second.commit()
  await producer.disconnect()
}

async function create(numPartitions) {
  const admin = kafka.admin()
  await admin.connect()
  await admin.createTopics({ topics: [{ topic, numPartitions, replicationFactor: 1 }], waitForLeaders: true })
  const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
  await admin.disconnect()
  return [topics[0].partitions.length]
}

const deeds = {
  produce: () => produce({}),
  idempotent: () => produce({ idempotent: true, maxInFlightRequests: 1 }),
  consume: () => consume(rest[0], Number(rest[1])),
  since: () => since(Number(rest[0])),
  transact: () => transact(Number(rest[0])),
  create: () => create(Number(rest[0])),
}

deeds[deed]()
  .then(lines => {
    for (const line of lines || []) console.log(line)
    process.exit(0)
  })
  .catch(error => {
    console.error(error)
    process.exit(1)
  })
