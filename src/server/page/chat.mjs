// The chat view: owns the conversation, sends it, draws what comes back.
import {ApiError, apiKey, request, streamChat} from './api.mjs';
import {SETTINGS, addChunk, hasText, load, loadMessages, newAnswer, requestBody, save, speedOf} from './conversation.mjs';
import {byId, el, icon} from './dom.mjs';
import {Turn, count, fit, isSendKey, speedText} from './turn.mjs';

const EXAMPLES = ['Tell me a story about a brave cat.', 'What is 3 + 4?', 'Name the capital of France.'];
const RETRY_MS = 1500;
const SHOWN_MS = 50;  // an answer is redrawn at most this often

let messages = loadMessages();
let settings = load('nibble.settings', {});
let turns = [];
let model = '';
let running = null;  // AbortController of the answer that is being written
let isConnecting = false;

const scroller = byId('scroller');
const prompt = byId('prompt');

export function startChat() {
  byId('examples').append(...EXAMPLES.map((text) => el('button', {type: 'button', onclick: () => send(text)}, text)));
  byId('composer').addEventListener('submit', (event) => {
    event.preventDefault();
    if (running) stop();
    else if (prompt.value.trim()) send(prompt.value.trim());
  });
  prompt.addEventListener('input', () => fit(prompt));
  prompt.addEventListener('keydown', onPromptKey);
  document.addEventListener('keydown', (event) => {
    if (event.key === 'Escape' && running && !byId('settings').open) stop();
  });
  byId('new').addEventListener('click', clear);
  byId('latest').addEventListener('click', () => scrollToEnd('smooth'));
  scroller.addEventListener('scroll', () => { byId('latest').hidden = isAtEnd(); }, {passive: true});
  window.addEventListener('pagehide', () => save('nibble.chat', messages));
  startSettings();
  redraw();
  scrollToEnd();
  connect();
}

function onPromptKey(event) {
  if (isSendKey(event)) {
    event.preventDefault();
    if (!running) byId('composer').requestSubmit();
  } else if (event.key === 'ArrowUp' && prompt.value === '' && !running) {
    const last = turns.findLast(({message}) => message.role === 'user');
    if (!last) return;
    event.preventDefault();
    last.edit();
  }
}

// --- The conversation

function send(text) {
  messages.push({role: 'user', content: text});
  prompt.value = '';
  fit(prompt);
  answer();
}

function stop() {
  running?.abort();
}

function regenerate(message) {
  cutBefore(message);
  answer();
}

function edit(message, text) {
  cutBefore(message);
  send(text);
}

function sendResults(message, texts) {
  message.calls.forEach(({id, name}, i) => messages.push({role: 'tool', callId: id, name, content: texts[i]}));
  answer();
}

function cutBefore(message) {
  stop();
  messages = messages.slice(0, messages.indexOf(message));
}

function clear() {
  stop();
  const old = messages;
  messages = [];
  keep();
  redraw();
  prompt.focus();
  if (old.length === 0) return;
  say('New chat.', el('button', {type: 'button', onclick: () => {
    messages = [...old, ...messages];
    keep();
    redraw();
    scrollToEnd();
    say('');
  }}, 'Undo'));
}

function keep() {
  if (!save('nibble.chat', messages)) say('This conversation is not kept: the browser has no room for it.');
}

async function answer() {
  let body;
  try {
    body = requestBody(messages, settings, model);
  } catch (error) {  // settings that make no sense
    openSettings();
    say(error.message);
    redraw();
    return;
  }
  stop();
  say('');
  keep();
  const message = newAnswer();
  messages.push(message);
  const control = running = new AbortController();
  redraw();
  scrollToEnd();
  await write(message, body, control.signal);
  if (running === control) running = null;
  if (!messages.includes(message)) return;  // cleared or cut meanwhile
  keep();
  followEnd(() => {
    turnOf(message).update(false);
    showRunning();
  });
  byId('live').textContent = message.error?.message ?? 'The answer is complete.';
}

// Fills `message` until the answer ends, however it ends.
async function write(message, body, signal) {
  const draw = paced(() => followEnd(() => {
    turnOf(message)?.update(true);
    showSpeed(message);
  }));
  try {
    for await (const [chunk, ms] of chunksOf(message, body, signal)) {
      addChunk(message, chunk, ms);
      draw();
    }
    message.finish ||= 'stop';
  } catch (error) {
    if (signal.aborted) message.finish = 'stopped';
    else fail(message, error);
  }
  delete message.waiting;
  draw.cancel();
}

function fail(message, error) {
  message.error = {message: error.message, status: error.status ?? 0};
  message.finish = 'error';
  if (error.status === 401) askForKey();
  else if (error.status === 0) connect();
}

// The stream, asked for again while the server loads its model.
async function* chunksOf(message, body, signal) {
  for (;;) {
    const started = performance.now();
    try {
      for await (const chunk of streamChat(body, signal)) yield [chunk, performance.now() - started];
      return;
    } catch (error) {
      if (!(error instanceof ApiError) || !error.isLoading || hasText(message)) throw error;
      message.waiting = `${error.message}. The answer starts when it is ready.`;
      turnOf(message)?.update(true);
      await pause(error.retryAfter * 1000 || RETRY_MS, signal);
    }
  }
}

function pause(ms, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener('abort', () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}

// --- Drawing

// Calls `draw` in an animation frame, no more often than SHOWN_MS; in a hidden page by timer alone.
function paced(draw) {
  let timer = null;
  let last = 0;
  const run = () => {
    timer = null;
    last = performance.now();
    draw();
  };
  const wait = () => Math.max(0, SHOWN_MS - (performance.now() - last));
  const later = () => { timer ??= setTimeout(() => document.hidden ? run() : requestAnimationFrame(() => timer && run()), wait()); };
  later.cancel = () => {
    clearTimeout(timer);
    timer = null;
  };
  return later;
}

const turnOf = (message) => turns.find((turn) => turn.message === message);

// Turns of messages that are still there stay; the others are made or removed.
function redraw() {
  const on = {edit, regenerate, results: sendResults};
  turns = messages.map((message) => turnOf(message) ?? new Turn(message, on));
  const log = byId('log');
  turns.forEach(({element}, i) => {
    if (log.children[i] !== element) log.insertBefore(element, log.children[i] ?? null);
  });
  while (log.children.length > turns.length) log.lastElementChild.remove();
  byId('empty').hidden = messages.length > 0;
  const last = messages.at(-1);
  if (running && last) turnOf(last).update(true);
  for (const turn of turns) turn.setWantsResults(turn.message === last && last.calls?.length > 0 && !running);
  showRunning();
}

function showRunning() {
  const send = byId('send');
  const label = running ? 'Stop' : 'Send';
  if (send.title !== label) {
    send.title = label;
    send.setAttribute('aria-label', label);
    send.replaceChildren(icon(label.toLowerCase()));
  }
  byId('log').setAttribute('aria-busy', String(Boolean(running)));
  if (!running) {
    byId('speed').textContent = '';
    const last = turns.at(-1);
    last?.setWantsResults(last.message.calls?.length > 0);
  }
}

function showSpeed({facts}) {
  const speed = speedOf(facts);
  byId('speed').textContent = speed ? `${speedText(speed)} · Esc stops` : 'Esc stops';
}

const isAtEnd = () => scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 60;

function scrollToEnd(behavior = 'instant') {
  scroller.scrollTo({top: scroller.scrollHeight, behavior});
}

// Stays at the end while text grows, unless the reader has scrolled up.
function followEnd(change) {
  const wasAtEnd = isAtEnd();
  change();
  if (wasAtEnd) scrollToEnd();
  else byId('latest').hidden = false;
}

function say(...content) {
  const notice = byId('notice');
  notice.replaceChildren(...content);
  notice.hidden = content.join('') === '';
}

// --- The server

// Waits until the server is ready, then asks which model it has.
async function connect() {
  if (isConnecting) return;
  isConnecting = true;
  for (let said = ''; ;) {
    try {
      await request('health');
      const {data: [first] = []} = await (await request('v1/models')).json();
      model = first?.id ?? '';
      const context = first?.max_model_len;
      byId('model').textContent = context ? `${model} · context of ${count(context)}` : model;
      byId('model').title = model;
      if (said) say('');
      break;
    } catch (error) {
      if (error.status === 401) {
        askForKey();
        break;
      }
      const text = `${error.message.replace(/\.?$/, '.')} Trying again…`;
      if (said !== text) say(said = text);
    }
    await pause(RETRY_MS);
  }
  isConnecting = false;
}

function askForKey() {
  const box = el('input', {type: 'password', 'aria-label': 'API key', placeholder: 'API key', required: true, autocomplete: 'off'});
  say(el('form', {class: 'key', onsubmit: async (event) => {
    event.preventDefault();
    apiKey.set(box.value.trim());
    say('');
    await connect();
    const last = messages.at(-1);
    if (model && last?.error?.status === 401) regenerate(last);
  }}, el('span', {}, apiKey.get() ? 'The server refused this key.' : 'This server wants a key.'), box,
        el('button', {class: 'primary'}, 'Use it')));
  box.focus();
}

// --- Settings

const field = (name) => byId(`s-${name}`);

function startSettings() {
  for (const name of SETTINGS) {
    field(name).value = settings[name] ?? '';
    field(name).addEventListener('input', keepSettings);
  }
  byId('tune').addEventListener('click', openSettings);
  byId('reset').addEventListener('click', () => {
    for (const name of SETTINGS) field(name).value = '';
    keepSettings();
  });
  const dialog = byId('settings');
  dialog.addEventListener('click', (event) => { if (event.target === dialog) dialog.close(); });
  markSettings();
}

function openSettings() {
  byId('settings').showModal();
}

// A field with a value that is out of range keeps the last good one.
function keepSettings() {
  for (const name of SETTINGS) {
    if (field(name).validity.valid) settings[name] = field(name).value.trim();
  }
  save('nibble.settings', settings);
  markSettings();
}

function markSettings() {
  byId('tune').classList.toggle('changed', SETTINGS.some((name) => settings[name]));
}
