// A producer that stores each record once, by nothing but JSON (docs/reference/http/records.md, "Send once").
import { call, type Penstock, type Schemas } from './client.js'

export type Message = { key: string; value: string }
type Topic = Schemas['TopicMetadata']

/** Sends to one topic. Let one call of `send` end before the next begins: it keeps the order of each key. */
export class Producer {
  // A number of 53 bits, because JSON numbers are doubles here. It belongs to this process alone.
  readonly #producerId = Number(crypto.getRandomValues(new BigUint64Array(1))[0]! >> 11n)
  readonly #next = new Map<number, number>()

  private constructor(
    readonly penstock: Penstock,
    readonly topic: Topic,
  ) {}

  static async open(penstock: Penstock, name: string): Promise<Producer> {
    const topic = await call(() => penstock.GET('/v1/metadata', { params: { query: { topic: name } } }), {
      repeatable: true,
    })
    if (!('topic_id' in topic)) throw new Error('the answer tells no topic')
    return new Producer(penstock, topic)
  }

  /**
   * Stores all messages, a request for each partition. It rejects with the first error. Then the messages of other
   * partitions may be stored, or be on their way, and those of the error, too. So go on with a new producer, and know
   * that messages which you send again may be stored twice.
   */
  async send(messages: readonly Message[]): Promise<void> {
    const parts = new Map<number, Schemas['Record'][]>()
    for (const { key, value } of messages) {
      const partition = this.#partitionOf(key)
      const record = { key, value, partition, timestamp_ms: Date.now() }
      parts.set(partition, [...(parts.get(partition) ?? []), record])
    }
    await Promise.all([...parts].map(([partition, records]) => this.#append(partition, records)))
  }

  async #append(partition: number, records: Schemas['Record'][]): Promise<void> {
    const first = this.#next.get(partition) ?? 0
    const body = { records, sequence: { producer_id: this.#producerId, first_sequence: first } }
    const params = { path: { topic: this.topic.name } }
    const { offsets } = await call(() => this.penstock.POST('/v1/topics/{topic}/records', { params, body }), {
      repeatable: true, // because of the sequence: without one, a repeat could store the records twice
      refusedIn: (data) => data.offsets[0]?.error, // they go together: all have the same result
    })
    if (offsets.length !== records.length) throw new Error(`${records.length} records got ${offsets.length} offsets`)
    this.#next.set(partition, first + records.length)
  }

  #partitionOf(key: string): number {
    const { first_writable_partition, writable_partitions } = this.topic
    return first_writable_partition + ((murmur2(new TextEncoder().encode(key)) & 0x7fffffff) % writable_partitions)
  }
}

/** The hash of Kafka's clients, of the SDK and of the service: the same key goes to the same partition from each. */
export function murmur2(data: Uint8Array): number {
  const multiply = (hash: number): number => Math.imul(hash, 0x5bd1e995)
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength)
  let hash = 0x9747b28c ^ data.length
  let at = 0
  for (; at + 4 <= data.length; at += 4) {
    const word = multiply(view.getInt32(at, true))
    hash = multiply(hash) ^ multiply(word ^ (word >>> 24))
  }
  if (at < data.length) {
    for (let last = data.length - 1; last >= at; last--) hash ^= data[last]! << (8 * (last - at))
    hash = multiply(hash)
  }
  hash = multiply(hash ^ (hash >>> 13))
  return hash ^ (hash >>> 15)
}
