// A typed client: openapi-fetch has the types of docs/openapi.json, and aws4fetch signs. This file adds errors and retries.
import { AwsClient } from 'aws4fetch'
import createClient, { type Client } from 'openapi-fetch'
import type { components, paths } from './openapi.js'

export type Schemas = components['schemas']
export type Penstock = Client<paths>
type Facts = Partial<Schemas['Error']>
type Answer<T> = { data?: T; error?: Schemas['ErrorAnswer'] | Schemas['GatewayAnswer']; response: Response }

const ANSWER_MS_MAX = 35_000 // API Gateway ends a call after 30 s
const TRIES_MAX = 8
const BACKOFF_MS = 100
const BACKOFF_MS_MAX = 5_000
const RETRIABLE_CODES: readonly Schemas['Error']['code'][] = [
  'THROTTLED',
  'INTERNAL',
  'NOT_ENOUGH_ZONES',
  'STORAGE_UNAVAILABLE',
  'IDENTITY_UNAVAILABLE',
]
const RETRIABLE_STATUSES = [429, 500, 502, 503, 504] // of API Gateway, where no function answered
const UNKNOWN_EFFECT = [500, 502, 503, 504] // of those: a function may have run

/** The service has refused a call, or no answer came. `facts` has what the code tells next to the message. */
export class PenstockError extends Error {
  /** The write may have happened, so a repeat may make it happen twice. */
  maybeApplied: boolean

  constructor(
    readonly code: string,
    message: string,
    readonly isRetriable: boolean,
    readonly facts: Facts,
    readonly retryAfterMs = 0,
  ) {
    super(`${code}: ${message}`)
    this.maybeApplied = facts.maybe_applied ?? false
  }

  /** The error of an answer, or of a part of an answer. */
  static of(error: Schemas['Error'], retryAfterMs = 0): PenstockError {
    const isRetriable = RETRIABLE_CODES.includes(error.code)
    return new PenstockError(error.code, error.message, isRetriable, error, error.retry_after_ms ?? retryAfterMs)
  }
}

/** A signing `fetch` with the variables that AWS's tools read. It tries once: `call` knows what may be repeated. */
export function signingFetch(): (input: Request | string, init?: RequestInit) => Promise<Response> {
  const aws = new AwsClient({
    accessKeyId: setting('AWS_ACCESS_KEY_ID'),
    secretAccessKey: setting('AWS_SECRET_ACCESS_KEY'),
    sessionToken: process.env['AWS_SESSION_TOKEN'],
    region: setting('AWS_REGION'),
    service: 'execute-api',
    retries: 0,
  })
  return (input, init) => aws.fetch(input, { ...init, signal: AbortSignal.timeout(ANSWER_MS_MAX) })
}

/** The client of the stage at `PENSTOCK_URL`. */
export function connect(): Penstock {
  return createClient<paths>({ baseUrl: setting('PENSTOCK_URL'), fetch: signingFetch() })
}

/** A variable of the environment that must be there. */
export function setting(name: string): string {
  const value = process.env[name]
  if (!value) throw new Error(`${name} is not set: load .penstock/local.env, or take it from the stack's outputs`)
  return value
}

/**
 * The data of an answer. It tries again where the same request may succeed.
 *
 * Once a try may have been applied, another one follows only if the call is `repeatable`: its repeat changes nothing
 * more. `send` is told that. The error of the last try tells it of all tries. `refusedIn` finds an error in the data,
 * because the answer to several parts is 200 even if one was refused.
 */
export async function call<T>(
  send: (mayBeApplied: boolean) => Promise<Answer<T>>,
  options: { repeatable: boolean; refusedIn?: (data: T) => Schemas['Error'] | undefined },
): Promise<T> {
  let mayBeApplied = false
  for (let tries = 1; ; tries++) {
    const outcome = await attempt(() => send(mayBeApplied), options.refusedIn)
    if (!(outcome instanceof PenstockError)) return outcome.data
    mayBeApplied ||= outcome.maybeApplied
    outcome.maybeApplied = mayBeApplied
    if (!outcome.isRetriable || (mayBeApplied && !options.repeatable) || tries === TRIES_MAX) throw outcome
    const jitterMs = Math.random() * Math.min(BACKOFF_MS * 2 ** (tries - 1), BACKOFF_MS_MAX)
    await new Promise((resolve) => setTimeout(resolve, outcome.retryAfterMs + jitterMs))
  }
}

async function attempt<T>(
  send: () => Promise<Answer<T>>,
  refusedIn: (data: T) => Schemas['Error'] | undefined = () => undefined,
): Promise<{ data: T } | PenstockError> {
  let answer: Answer<T>
  try {
    answer = await send()
  } catch (error) {
    // fetch throws a TypeError if it gets no answer, and a DOMException if the signal ends its wait.
    if (!(error instanceof TypeError || error instanceof DOMException)) throw error
    return new PenstockError('NO_ANSWER', String(error.cause ?? error), true, { maybe_applied: true })
  }
  const { error, response } = answer
  if (response.ok) {
    const data = answer.data as T // undefined for a 204, as its type says
    const refused = refusedIn(data)
    return refused === undefined ? { data } : PenstockError.of(refused)
  }
  const retryAfterMs = 1_000 * Number(response.headers.get('Retry-After') ?? 0)
  if (typeof error === 'object' && 'error' in error) return PenstockError.of(error.error, retryAfterMs)
  const said = typeof error === 'object' ? error.message : String(error) // a proxy may answer with plain text
  const facts = { maybe_applied: UNKNOWN_EFFECT.includes(response.status) }
  const isRetriable = RETRIABLE_STATUSES.includes(response.status)
  return new PenstockError(`HTTP_${response.status}`, said, isRetriable, facts, retryAfterMs)
}
