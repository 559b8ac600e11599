// The server's HTTP interface as this page uses it. Paths are relative: a proxy may put the page below a prefix.
import {readEvents} from './sse.mjs';

const KEY = 'nibble.key';

// Kept for this tab only.
export const apiKey = {
  get: () => sessionStorage.getItem(KEY) ?? '',
  set: (key) => sessionStorage.setItem(KEY, key),
};

export class ApiError extends Error {
  constructor(message, status = 0, retryAfter = 0) {
    super(message);
    this.status = status;  // 0: no answer
    this.retryAfter = retryAfter;  // seconds, 0 when the server did not say
  }
  get isLoading() { return this.status === 503 && /loading/i.test(this.message); }
}

// The message of an error body, whatever its shape.
export function errorText(text, fallback) {
  try {
    const {error, message, detail} = JSON.parse(text);
    const found = error?.message ?? error ?? message ?? detail;
    return typeof found === 'string' ? found : JSON.stringify(found ?? JSON.parse(text));
  } catch {
    return text.trim().slice(0, 500) || fallback;
  }
}

export async function request(path, {json, signal} = {}) {
  const headers = {};
  if (apiKey.get()) headers.Authorization = `Bearer ${apiKey.get()}`;
  if (json) headers['Content-Type'] = 'application/json';
  let response;
  try {
    response = await fetch(path, {method: json ? 'POST' : 'GET', headers, signal, cache: 'no-store',
                                  body: json && JSON.stringify(json)});
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ApiError('The server does not answer.');
  }
  if (response.ok) return response;
  const text = await response.text().catch(() => '');
  throw new ApiError(errorText(text, response.statusText || 'no reason given'), response.status,
                     Number(response.headers.get('Retry-After')) || 0);
}

// The chunks of a streamed answer. Ends without a value; throws an ApiError, also for an error in the stream.
export async function* streamChat(body, signal) {
  const response = await request('v1/chat/completions', {json: body, signal});
  if (!/event-stream/.test(response.headers.get('Content-Type') ?? '')) {
    throw new ApiError(`wanted text/event-stream, found ${response.headers.get('Content-Type')}`);
  }
  try {
    for await (const {data} of readEvents(response.body)) {
      if (data === '[DONE]') return;
      const chunk = parseChunk(data);
      if (chunk.error) throw new ApiError(errorText(data), Number(chunk.error.code) || 500);
      yield chunk;
    }
  } catch (error) {
    if (error instanceof ApiError || error.name === 'AbortError') throw error;
    throw new ApiError('The connection broke off.');
  }
  throw new ApiError('The stream ended before the answer did.');
}

function parseChunk(data) {
  try {
    return JSON.parse(data);
  } catch {
    throw new ApiError(`an event that is not JSON: ${data.slice(0, 80)}`);
  }
}
