// Runs docs/reference/conformance.json on the stage at PENSTOCK_URL: node dist/conformance.js FILE. Exit code 1 if an
// answer is not as the file says. docs/reference/conformance.md has the shape of the file.
import { randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { setting, signingFetch } from './client.js'

type Json = null | boolean | number | string | Json[] | { [name: string]: Json }
type Fields = { [name: string]: Json }
interface Step {
  method: string
  path: string
  body?: Json
  frame?: { header: Json; data: string }
  status: number
  answer?: Json
  data?: string
  take?: Record<string, string>
}

const BATCHES = 'application/vnd.penstock.batches'
const send = signingFetch()

const [file] = process.argv.slice(2)
if (file === undefined) throw new Error('usage: node dist/conformance.js FILE')
const { scenarios } = JSON.parse(readFileSync(file, 'utf8')) as { scenarios: { name: string; steps: Step[] }[] }
for (const { name, steps } of scenarios) {
  try {
    await run(steps)
    console.log(`ok ${name}`)
  } catch (error) {
    console.log(`not ok ${name}: ${String(error)}`)
    process.exitCode = 1
  }
}

async function run(steps: Step[]): Promise<void> {
  const known: Fields = { run: randomBytes(4).toString('hex') }
  for (const step of steps) {
    const path = String(filled(step.path, known))
    const body = requestOf(step, known)
    const headers = { 'Content-Type': step.frame ? BATCHES : 'application/json' }
    const response = await send(setting('PENSTOCK_URL') + path, { method: step.method, headers, body })
    const { answer, data } = await parsed(response)
    const where = `${step.method} ${path}: ${response.status} ${JSON.stringify(answer)?.slice(0, 500)}`
    if (response.status !== step.status) throw new Error(`the status is not ${step.status}: ${where}`)
    const wrong = step.answer === undefined ? [] : differences(filled(step.answer, known), answer, 'answer')
    if (wrong.length) throw new Error(`${wrong.join(', ')}: ${where}`)
    if (data !== (step.data ?? '')) throw new Error(`other bytes: ${where}`)
    for (const [name, place] of Object.entries(step.take ?? {})) known[name] = at(answer, place)
  }
}

function requestOf(step: Step, known: Fields): Uint8Array<ArrayBuffer> | undefined {
  if (step.frame) return framed(filled(step.frame.header, known), Buffer.from(step.frame.data, 'base64'))
  return step.body === undefined ? undefined : new TextEncoder().encode(JSON.stringify(filled(step.body, known)))
}

/** A frame: the length of the header, 4 bytes, then the header in JSON, then the batches. */
function framed(header: Json, batches: Uint8Array): Uint8Array<ArrayBuffer> {
  const text = new TextEncoder().encode(JSON.stringify(header))
  const frame = new Uint8Array(4 + text.length + batches.length)
  new DataView(frame.buffer).setUint32(0, text.length)
  frame.set(text, 4)
  frame.set(batches, 4 + text.length)
  return frame
}

async function parsed(response: Response): Promise<{ answer: Json; data: string }> {
  const body = Buffer.from(await response.arrayBuffer())
  if (response.headers.get('Content-Type') !== BATCHES) {
    return { answer: body.length ? (JSON.parse(body.toString()) as Json) : null, data: '' }
  }
  const end = 4 + body.readUInt32BE(0)
  return { answer: JSON.parse(body.toString('utf8', 4, end)) as Json, data: body.toString('base64', end) }
}

/** The value with its variables put in, and with its long texts written out. */
function filled(value: Json, known: Fields): Json {
  if (typeof value === 'string') {
    const whole = /^\$\{(\w+)\}$/.exec(value)
    return whole ? named(whole[1], known) : value.replace(/\$\{(\w+)\}/g, (_, name: string) => String(named(name, known)))
  }
  if (Array.isArray(value)) return value.map((each) => filled(each, known))
  if (value === null || typeof value !== 'object') return value
  if (typeof value['$text'] === 'string') return value['$text'].repeat(Number(value['$times']))
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, filled(each, known)]))
}

function named(name: string | undefined, known: Fields): Json {
  const value = known[name ?? '']
  if (value === undefined) throw new Error(`no step has taken ${name}`)
  return value
}

/** Where the answer lacks what is expected. An object may have more fields, an array has as many elements. */
function differences(expected: Json, got: Json | undefined, where: string): string[] {
  if (isFields(expected) && '$type' in expected) {
    const isOne = expected['$type'] === 'integer' ? Number.isInteger(got) : typeof got === expected['$type']
    return isOne ? [] : [`${where} is ${JSON.stringify(got)}, not of type ${String(expected['$type'])}`]
  }
  if (isFields(expected) && isFields(got)) {
    return Object.entries(expected).flatMap(([name, each]) => differences(each, got[name], `${where}.${name}`))
  }
  if (Array.isArray(expected) && Array.isArray(got) && expected.length === got.length) {
    return expected.flatMap((each, index) => differences(each, got[index], `${where}[${index}]`))
  }
  return expected === got ? [] : [`${where} is ${JSON.stringify(got)}, not ${JSON.stringify(expected)}`]
}

function isFields(value: Json | undefined): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function at(answer: Json, place: string): Json {
  let found: Json | undefined = answer
  for (const part of place.split('.')) {
    found = Array.isArray(found) ? found[Number(part)] : isFields(found) ? found[part] : undefined
  }
  if (found === undefined) throw new Error(`the answer has no ${place}`)
  return found
}
