// Loaded before an example: notes each request in the file FETCH_LOG, and loses each LOSE_EVERY-th answer of a write.
import { appendFileSync } from 'node:fs'

const { FETCH_LOG, LOSE_EVERY } = process.env
const real = globalThis.fetch
let writes = 0

globalThis.fetch = async (request) => {
  appendFileSync(FETCH_LOG, `${Date.now()} ${request.method} ${new URL(request.url).pathname}\n`)
  const answer = await real(request)
  if (request.method !== 'GET' && LOSE_EVERY && ++writes % Number(LOSE_EVERY) === 0) throw new TypeError('lost')
  return answer
}
