// Runs the example's worker on a client that fails as it is told: node worker_on_a_fake.mjs WORKER.JS SCENARIO.
// SCENARIO is JSON. It prints each call of the handler, and each acknowledgement that was sent.
import { pathToFileURL } from 'node:url'

const [file, text] = process.argv.slice(2)
const { lockMs, untilMsLeft, loseFirstAcquire, refuseAll, fails, waitsForRenewal } = JSON.parse(text)
const { Worker } = await import(pathToFileURL(file).href)
const stop = new AbortController()
let acquires = 0
let refused = 0
let renewed = () => {}
const renewal = new Promise((resolve) => (renewed = resolve))

const answer = (data) => ({ data, response: new Response(null, { status: 200 }) })
const refusal = () => ({
  error: { error: { code: 'INVALID_REQUEST', message: 'refused', maybe_applied: false } },
  response: new Response(null, { status: 400 }),
})
const record = (offset) => ({
  ...{ topic: 'orders', partition: 0, offset, lock_id: 'lock', delivery_count: 1, value: 'v' },
  until_ms_left: untilMsLeft[offset],
})
const penstock = {
  async POST(path, { body }) {
    if (path.endsWith('/records')) {
      if (loseFirstAcquire && !acquires++) throw new TypeError('lost')
      return answer({ lock_ms: lockMs, records: untilMsLeft.map((_, offset) => record(offset)) })
    }
    for (const { type, offsets, reason, uncounted } of body.acknowledge) {
      console.log(JSON.stringify({ type, offsets, reason, uncounted }))
      if (type === 'renew') renewed()
      else if (!uncounted && (refuseAll || !refused++)) return refusal()
    }
    return answer({ acknowledged: [] })
  },
}
const settings = { group: 'g', recordsMax: 9, waitMs: 0, pauseMsMax: 1 }
const worker = new Worker(penstock, settings, async ({ offset }) => {
  console.log(`handles ${offset}`)
  if (waitsForRenewal) await renewal
  if (fails) throw new Error('bad')
})
await worker.run(stop.signal).catch((error) => console.log(`ends: ${error}`))
