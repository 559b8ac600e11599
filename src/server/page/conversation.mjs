// A conversation as data: what is sent, what an answer collects, what is kept. Pure functions and storage.
//
// message: {role, content} and, in answers,
//   reasoning, calls: [{id, name, arguments}], finish, error: {message, status}, facts: {...}

export const SETTINGS = ['system', 'temperature', 'top_p', 'top_k', 'min_p', 'max_tokens', 'seed', 'reasoning_effort', 'tools'];

// What the page asks for beyond the messages. Empty settings are left to the server.
export function requestBody(messages, settings, model) {
  const body = {model, messages: [], stream: true, stream_options: {include_usage: true}, receipt: true};
  if (settings.system) body.messages.push({role: 'system', content: settings.system});
  for (const message of messages) {
    if (!message.error || hasText(message)) body.messages.push(wireMessage(message));
  }
  for (const name of ['temperature', 'top_p', 'top_k', 'min_p', 'max_tokens', 'seed']) {
    if (settings[name]) body[name] = Number(settings[name]);
  }
  if (settings.reasoning_effort) body.reasoning_effort = settings.reasoning_effort;
  if (settings.tools) body.tools = parseTools(settings.tools);
  return body;
}

export const hasText = ({content, reasoning, calls}) => Boolean(content || reasoning || calls?.length);

function wireMessage({role, content, reasoning, calls, callId}) {
  const wire = {role, content};
  if (callId) wire.tool_call_id = callId;
  if (calls?.length) {
    wire.tool_calls = calls.map((call) => ({id: call.id, type: 'function',
                                            function: {name: call.name, arguments: call.arguments}}));
    if (reasoning) wire.reasoning_content = reasoning;  // needed only until the calls are answered
  }
  return wire;
}

// A list of OpenAI tools, or of bare functions. Throws with a message for the user.
export function parseTools(text) {
  let tools;
  try {
    tools = JSON.parse(text);
  } catch (error) {
    throw new Error(`Tools: ${error.message}`);
  }
  if (!Array.isArray(tools)) throw new Error('Tools: wanted a JSON list, found something else.');
  return tools.map((tool, i) => {
    const entry = tool?.type === 'function' ? tool : {type: 'function', function: tool};
    if (typeof entry.function?.name !== 'string') throw new Error(`Tools: entry ${i + 1} has no name.`);
    return entry;
  });
}

export const newAnswer = () => ({role: 'assistant', content: '', reasoning: '', calls: [], finish: '', facts: {pieces: 0}});

// Adds one chunk of the stream, `ms` after the request was sent.
export function addChunk(answer, chunk, ms) {
  const {facts} = answer;
  const choice = chunk.choices?.[0];
  const delta = choice?.delta ?? {};
  // Servers that send both names send the same text twice.
  const reasoning = delta.reasoning_content ?? delta.reasoning ?? '';
  if (reasoning || delta.content || delta.tool_calls?.length) {
    facts.firstMs ??= ms;
    facts.lastMs = ms;
    facts.pieces++;
  }
  if (reasoning) facts.reasoningPieces = (facts.reasoningPieces ?? 0) + 1;
  if (facts.thoughtMs === undefined && answer.reasoning && (delta.content || delta.tool_calls?.length)) {
    facts.thoughtMs = ms - facts.firstMs;
  }
  answer.reasoning += reasoning;
  answer.content += delta.content ?? '';
  for (const call of delta.tool_calls ?? []) addCall(answer.calls, call);
  if (choice?.finish_reason) answer.finish = choice.finish_reason;
  for (const name of ['model', 'usage', 'id']) {
    if (chunk[name]) facts[name] = chunk[name];
  }
  if (chunk.receipt) facts.receipt = {...chunk.receipt.choices?.[0], request_id: chunk.receipt.request_id};
}

function addCall(calls, {index = 0, id, function: part = {}}) {
  const call = calls[index] ??= {id: '', name: '', arguments: ''};
  if (id) call.id = id;
  call.name += part.name ?? '';
  call.arguments += part.arguments ?? '';
}

// Tokens per second after the first: by the server's clock, else by ours; while it streams, a piece
// counts as a token.
export function speedOf({receipt, usage, firstMs, lastMs, pieces}) {
  const seconds = (receipt?.decode_ms ?? lastMs - firstMs) / 1000;
  const tokens = usage?.completion_tokens ?? pieces;
  return tokens > 1 && seconds > 0 ? (tokens - 1) / seconds : null;
}

export function prettyJson(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;  // still streaming, or the model wrote something else
  }
}

// Storage that may be full, forbidden or hold another version's data: then `fallback`.
export function load(key, fallback) {
  try {
    return JSON.parse(localStorage.getItem(key)) ?? fallback;
  } catch {
    return fallback;
  }
}

// False when the browser would not keep it.
export function save(key, value) {
  try {
    localStorage.setItem(key, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}

// What was kept, if it is a conversation at all. Answers that were being written count as stopped.
export function loadMessages() {
  const kept = load('nibble.chat', []);
  const isMessage = (m) => typeof m?.content === 'string' && ['user', 'assistant', 'tool'].includes(m.role) &&
                           Array.isArray(m.calls ?? []);
  if (!Array.isArray(kept) || !kept.every(isMessage)) return [];
  return kept.map((m) => m.role === 'assistant' ? {...newAnswer(), ...m, finish: m.finish || 'stopped'} : m);
}
