// Works on the orders of a share group until SIGTERM: node dist/work.js GROUP. Start as many as you like.
import { setTimeout as sleep } from 'node:timers/promises'
import { connect } from './client.js'
import { type LockedRecord, Reject, Worker } from './worker.js'

const settings = {
  group: process.argv[2] ?? 'workers',
  recordsMax: 10, // what others could work on meanwhile waits here, so take few
  waitMs: Number(process.env['WAIT_MS'] ?? 0),
  pauseMsMax: 5_000,
}
const stop = new AbortController()
for (const signal of ['SIGTERM', 'SIGINT'] as const) process.once(signal, () => stop.abort())
await new Worker(connect(), settings, handle).run(stop.signal)

/** The work: an order says how long it takes, and how many tries fail. */
async function handle({ partition, offset, delivery_count, value }: LockedRecord): Promise<void> {
  const order = orderOf(value)
  console.log(`begins ${partition} ${offset}, delivery ${delivery_count}`)
  await sleep(order.ms)
  if (delivery_count <= order.fails) throw new Error(`try ${delivery_count} of order ${order.id} has failed`)
  console.log(`has done order ${order.id}`)
}

function orderOf(value: string | null | undefined): { id: number; ms: number; fails: number } {
  try {
    const { id, ms = 0, fails = 0 } = JSON.parse(value ?? '') as Record<string, unknown>
    if (typeof id === 'number' && typeof ms === 'number' && typeof fails === 'number') return { id, ms, fails }
  } catch {
    // falls through: bytes that are no text come as `value_base64`, and are no order either
  }
  throw new Reject('not an order')
}
