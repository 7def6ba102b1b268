// A worker of a share group: it locks records, works on them one by one, and keeps their locks while it works.
import { randomBytes } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { call, type Penstock, type Schemas } from './client.js'

export type LockedRecord = Schemas['AcquiredRecord']
/** Returns: the record is accepted. Throws `Reject`: it is dead-lettered. Throws anything else: it comes again. */
export type Handler = (record: LockedRecord) => Promise<void>
type Verdict = Pick<Schemas['Acknowledgement'], 'type' | 'reason' | 'uncounted' | 'lock_ms'>

export interface WorkerSettings {
  group: string
  recordsMax: number
  /** The service holds an acquire so long until a record comes. 0: the worker pauses instead, which costs less. */
  waitMs: number
  pauseMsMax: number
}

/** A record that no repeat will help. The reason goes to the dead letter. */
export class Reject extends Error {}

const NOT_BEGUN: Verdict = { type: 'release', uncounted: true }
const REASON_BYTES_MAX = 200
const PAUSE_MS = 200

/** Works until the signal, then finishes the record in hand and gives back the others, uncounted. */
export class Worker {
  readonly #held = new Map<LockedRecord, Verdict>() // whose locks are this worker's, and how they end

  constructor(
    readonly penstock: Penstock,
    readonly settings: WorkerSettings,
    readonly handle: Handler,
  ) {}

  async run(stop: AbortSignal): Promise<void> {
    for (let empty = 0; !stop.aborted; ) {
      const { acquired, renewInMs } = await this.#acquire()
      empty = acquired.records.length ? 0 : empty + 1
      if (acquired.records.length) await this.#work(acquired, renewInMs, stop)
      const pauseMs = this.settings.waitMs ? (acquired.retry_after_ms ?? 0) : this.#pauseMs(empty, acquired)
      await sleep(pauseMs, undefined, { signal: stop }).catch(() => undefined) // the signal ends the pause
    }
  }

  /**
   * An acquire in flight is never cut off: its answer may bring locks, which nobody would give back.
   *
   * The first renewal is due at a third of the time that the shortest lock has left since the request. A repeat may
   * get locks of the first try, so it renews at once.
   */
  async #acquire(): Promise<{ acquired: Schemas['AcquiredRecords']; renewInMs: number }> {
    const nonce = randomBytes(12).toString('base64url')
    const { group, recordsMax, waitMs } = this.settings
    const params = { path: { group } }
    const wish = { nonce, consumer_id: `node-${process.pid}`, max_records: recordsMax, wait_ms: waitMs }
    let isRepeated = false
    let sentMs = 0
    const send = (repeat: boolean) => {
      isRepeated = repeat
      sentMs = performance.now()
      return this.penstock.POST('/v1/share-groups/{group}/records', { params, body: { ...wish, repeat } })
    }
    const acquired = await call(send, { repeatable: true }) // because of the nonce: a repeat gets the same locks
    const leftMs = Math.min(...acquired.records.map((record) => record.until_ms_left))
    return { acquired, renewInMs: isRepeated ? 0 : Math.max(0, leftMs / 3 - (performance.now() - sentMs)) }
  }

  async #work(acquired: Schemas['AcquiredRecords'], renewInMs: number, stop: AbortSignal): Promise<void> {
    for (const record of acquired.records) this.#held.set(record, NOT_BEGUN)
    const keeping = new AbortController()
    const kept = this.#renew(renewInMs, acquired.lock_ms / 3, keeping.signal)
    try {
      for (const record of acquired.records) {
        if (stop.aborted) break
        if (!this.#held.has(record)) continue // its lock was lost
        this.#held.set(record, { type: 'release', reason: 'the worker has failed' })
        const verdict = await this.#verdict(record)
        if (this.#held.has(record)) this.#held.set(record, verdict)
        await this.#settle([record], verdict)
      }
    } finally {
      keeping.abort()
      await kept
      await this.#settleAll()
    }
  }

  /** Ends each lock as it is to end. So a verdict that did not arrive goes again, and its record is not given back. */
  async #settleAll(): Promise<void> {
    const begun = [...this.#held].filter(([, verdict]) => verdict !== NOT_BEGUN)
    const others = [...this.#held.keys()].filter((record) => this.#held.get(record) === NOT_BEGUN)
    try {
      for (const [record, verdict] of begun) await this.#settle([record], verdict)
    } finally {
      await this.#settle(others, NOT_BEGUN)
    }
  }

  async #verdict(record: LockedRecord): Promise<Verdict> {
    try {
      await this.handle(record)
      return { type: 'accept' }
    } catch (error) {
      return { type: error instanceof Reject ? 'reject' : 'release', reason: shortened(String(error)) }
    }
  }

  /** Renews what is held, so that a record may take longer than its lock, and the ones behind it may wait. */
  async #renew(firstMs: number, everyMs: number, end: AbortSignal): Promise<void> {
    for (let pauseMs = firstMs; ; pauseMs = everyMs) {
      await sleep(pauseMs, undefined, { signal: end }).catch(() => undefined)
      if (end.aborted) return
      await this.#acknowledge([...this.#held.keys()], { type: 'renew' }).catch((error: unknown) => console.error(String(error)))
    }
  }

  async #settle(records: LockedRecord[], verdict: Verdict): Promise<void> {
    await this.#acknowledge(records, verdict)
    for (const record of records) this.#held.delete(record)
  }

  /** A repeat is safe: records that an earlier try has finished are `done`. */
  async #acknowledge(records: LockedRecord[], verdict: Verdict): Promise<void> {
    if (!records.length) return
    const acknowledge = entries(records, verdict)
    const params = { path: { group: this.settings.group } }
    const body = { acknowledge }
    const { acknowledged } = await call(
      () => this.penstock.POST('/v1/share-groups/{group}/acknowledge', { params, body }),
      { repeatable: true },
    )
    for (const result of acknowledged) this.#learn(records, result)
  }

  /** Takes the lock as it is now. A lost one may be another worker's: its records come again, to somebody. */
  #learn(records: LockedRecord[], { topic, partition, lock_id, result, next_lock_id }: Schemas['AcknowledgedRanges']): void {
    if (result === 'LOCK_LOST') console.error(`lost a lock on partition ${partition} of ${topic}`)
    const isOfLock = (each: LockedRecord): boolean =>
      each.topic === topic && each.partition === partition && each.lock_id === lock_id
    for (const record of [...this.#held.keys()].filter(isOfLock)) {
      if (next_lock_id !== undefined) record.lock_id = next_lock_id
      else if (result === 'LOCK_LOST' && records.includes(record)) this.#held.delete(record)
    }
  }

  /** Longer with each empty answer, but not past the time at which a record may come back. */
  #pauseMs(empty: number, { next_available_ms }: Schemas['AcquiredRecords']): number {
    if (!empty) return 0
    const pauseMs = Math.min(PAUSE_MS * 2 ** (empty - 1), this.settings.pauseMsMax)
    return Math.min(pauseMs, next_available_ms ?? Infinity) * (0.9 + 0.2 * Math.random())
  }
}

/** One acknowledgement for each lock, with an offset range for each record. */
function entries(records: LockedRecord[], verdict: Verdict): Schemas['Acknowledgement'][] {
  const byLock = new Map<string, Schemas['Acknowledgement'] & { offsets: [number, number][] }>()
  for (const { topic, partition, lock_id, offset } of records) {
    const key = `${topic} ${partition} ${lock_id}`
    const entry = byLock.get(key) ?? { topic, partition, lock_id, offsets: [], ...verdict }
    entry.offsets.push([offset, offset + 1])
    byLock.set(key, entry)
  }
  return [...byLock.values()]
}

function shortened(text: string): string {
  return new TextDecoder().decode(new TextEncoder().encode(text).subarray(0, REASON_BYTES_MAX - 2), { stream: true })
}
