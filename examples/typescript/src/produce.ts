// Sends each line of standard input as a record: node dist/produce.js TOPIC < lines. The text before a tab is its key.
import { createInterface } from 'node:readline'
import { connect } from './client.js'
import { type Message, Producer } from './producer.js'

const AT_ONCE = 500

const [topic] = process.argv.slice(2)
if (topic === undefined) throw new Error('usage: node dist/produce.js TOPIC < lines')
const producer = await Producer.open(connect(), topic)
let sent = 0
let messages: Message[] = []
for await (const line of createInterface({ input: process.stdin })) {
  const tab = line.indexOf('\t')
  messages.push({ key: line.slice(0, Math.max(tab, 0)), value: line.slice(tab + 1) })
  if (messages.length === AT_ONCE) await flush()
}
await flush()
console.log(`sent ${sent} records`)

async function flush(): Promise<void> {
  await producer.send(messages)
  sent += messages.length
  messages = []
}
