// One message on the page. `update` brings the elements in line with the message.
import {copyButton, el, icon, iconButton} from './dom.mjs';
import {codeBlock, showProse} from './prose.mjs';
import {hasText, prettyJson, speedOf} from './conversation.mjs';

export const count = (n) => new Intl.NumberFormat('en').format(n);
const tokens = (n) => `${count(n)} ${n === 1 ? 'token' : 'tokens'}`;
export const seconds = (ms) => ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(ms < 10000 ? 1 : 0)} s`;
export const speedText = (speed) => `${speed < 10 ? speed.toFixed(1) : count(Math.round(speed))} tok/s`;

// `on`: {edit(message, text), regenerate(message), results(message, texts)}
export class Turn {
  constructor(message, on) {
    this.message = message;
    this.on = on;
    this.wantsResults = false;
    this.element = el('article', {class: `turn ${message.role}`, 'aria-label': {user: 'You', tool: 'Tool'}[message.role] ?? 'Answer'});
    if (message.role === 'assistant') this.#buildAnswer();
    else this.#buildUser();
    this.update(false);
  }

  #buildUser() {
    const {message} = this;
    this.body = el('div', {class: 'bubble'}, message.content);
    this.element.append(this.body);
    if (message.role === 'tool') {
      this.element.prepend(el('p', {class: 'tool-name'}, icon('tool'), `Result of ${message.name}`));
      return;
    }
    this.actions = el('div', {class: 'actions'}, copyButton('Copy', () => message.content),
                      iconButton('edit', 'Edit', () => this.edit()));
    this.element.append(this.actions);
  }

  #buildAnswer() {
    const {message} = this;
    this.thinkingTitle = el('summary');
    this.thinkingText = el('div', {class: 'thought'});
    this.thinking = el('details', {class: 'thinking', hidden: true}, this.thinkingTitle, this.thinkingText);
    // A click says what the reader wants; from then on nothing folds by itself.
    this.thinkingTitle.addEventListener('click', () => { this.isFoldChosen = true; });
    this.body = el('div', {class: 'prose'});
    this.calls = el('div', {class: 'calls'});
    this.state = el('p', {class: 'state', hidden: true});
    this.error = el('div', {class: 'error', role: 'alert', hidden: true});
    this.receipt = el('details', {class: 'receipt', ontoggle: () => this.receipt.open && this.receipt.scrollIntoView({block: 'nearest'})});
    this.actions = el('div', {class: 'actions'},
        copyButton('Copy', () => message.content || message.reasoning),
        iconButton('redo', 'Regenerate', () => this.on.regenerate(message)), this.receipt);
    this.element.append(this.thinking, this.body, this.calls, this.state, this.error, this.actions);
  }

  update(isStreaming) {
    if (this.message.role !== 'assistant') return;
    const {message} = this;
    this.element.classList.toggle('streaming', isStreaming);
    this.#showThinking(isStreaming);
    showProse(this.body, message.content);
    this.#showCalls(isStreaming);
    this.#showState(isStreaming);
    this.error.hidden = !message.error;
    if (message.error) this.#showError(message.error);
    this.actions.hidden = isStreaming || (!hasText(message) && Boolean(message.error));
    if (!isStreaming) this.#showReceipt();
  }

  #showThinking(isStreaming) {
    const {reasoning, content, calls, facts, error} = this.message;
    this.thinking.hidden = !reasoning;
    if (!reasoning) return;
    const isThinking = isStreaming && !content && !calls.length && !error;
    if (!this.isFoldChosen) this.thinking.open = !content && !calls.length;
    const number = facts.usage?.completion_tokens_details?.reasoning_tokens || facts.reasoningPieces;
    const ms = facts.thoughtMs ?? facts.lastMs - facts.firstMs;
    this.thinkingTitle.textContent = `${isThinking ? 'Thinking' : 'Thought'} for ${seconds(ms)}, ${tokens(number)}`;
    showProse(this.thinkingText, reasoning);
    if (isThinking) this.thinkingText.scrollTop = this.thinkingText.scrollHeight;
  }

  #showCalls(isStreaming) {
    this.calls.replaceChildren(...this.message.calls.map((call) => el('section', {class: 'call'},
        el('p', {class: 'tool-name'}, icon('tool'), `Calls ${call.name}`),
        codeBlock({language: 'arguments', text: prettyJson(call.arguments)}))));
    if (!isStreaming && this.wantsResults) this.calls.append(this.#resultForm());
  }

  // The person plays the tools: one box for each call.
  #resultForm() {
    const {calls} = this.message;
    const boxes = calls.map(({name}) =>
      el('textarea', {rows: 1, placeholder: `Result of ${name}`, 'aria-label': `Result of ${name}`, required: true}));
    return el('form', {class: 'results', onsubmit: (event) => {
      event.preventDefault();
      this.on.results(this.message, boxes.map((box) => box.value));
    }}, ...boxes, el('button', {class: 'primary'}, calls.length > 1 ? 'Send results' : 'Send result'));
  }

  setWantsResults(wants) {
    if (this.wantsResults === wants) return;
    this.wantsResults = wants;
    this.update(false);
  }

  #showState(isStreaming) {
    const {message} = this;
    const ends = {stopped: 'Stopped.', length: 'Cut off: the longest allowed answer was reached.',
                  content_filter: 'Ended by a filter.'};
    let text = isStreaming ? '' : ends[message.finish] ?? '';
    if (isStreaming && message.waiting) text = message.waiting;
    if (!isStreaming && !text && !hasText(message) && !message.error && message.finish) text = 'The answer is empty.';
    this.state.textContent = text;
    this.state.hidden = !text;
    this.element.classList.toggle('waiting', isStreaming && !text && !hasText(message));
  }

  #showError({message, status}) {
    const again = el('button', {type: 'button', onclick: () => this.on.regenerate(this.message)}, 'Try again');
    this.error.replaceChildren(el('p', {}, status ? el('strong', {}, `${status} `) : '', message), again);
  }

  #showReceipt() {
    const {facts, finish} = this.message;
    const speed = speedOf(facts);
    const used = facts.usage?.completion_tokens;
    const brief = [used && tokens(used), speed && speedText(speed)].filter(Boolean).join(' · ');
    this.receipt.hidden = !brief;
    if (!brief) return;
    const rows = receiptRows(facts, finish).map(([name, value]) => [el('dt', {}, name), el('dd', {}, String(value))]);
    this.receipt.replaceChildren(el('summary', {title: 'Receipt'}, brief), el('dl', {}, ...rows.flat()));
  }

  edit() {
    const box = el('textarea', {'aria-label': 'Edit message', rows: 1});
    box.value = this.message.content;
    const end = () => form.replaceWith(this.body, this.actions);
    const form = el('form', {class: 'editor', onsubmit: (event) => {
      event.preventDefault();
      if (box.value.trim()) this.on.edit(this.message, box.value.trim());
    }, onkeydown: (event) => {
      if (event.key === 'Escape') {
        event.stopPropagation();
        end();
      } else if (isSendKey(event)) {
        event.preventDefault();
        form.requestSubmit();
      }
    }}, box, el('p', {class: 'editor-foot'}, el('button', {type: 'button', onclick: end}, 'Cancel'),
                el('button', {class: 'primary'}, 'Send')));
    this.body.replaceWith(form);
    this.actions.remove();
    fit(box);
    box.addEventListener('input', () => fit(box));
    box.focus();
  }
}

// Enter, unless it ends a word in an input method or a new line is wanted.
export const isSendKey = (event) => event.key === 'Enter' && !event.shiftKey && !event.isComposing;

// For browsers without `field-sizing: content`.
export function fit(box) {
  if (CSS.supports('field-sizing', 'content')) return;
  box.style.height = 'auto';
  box.style.height = `${box.scrollHeight + 2}px`;
}

function receiptRows({usage, receipt, model, firstMs, id}, finish) {
  const some = (n) => n > 0 ? tokens(n) : undefined;
  const ms = (value) => value === undefined ? undefined : seconds(value);
  const rows = [
    ['Model', model],
    ['Prompt', some(usage?.prompt_tokens)],
    ['From cache', some(usage?.prompt_tokens_details?.cached_tokens)],
    ['Answer', some(usage?.completion_tokens)],
    ['Reasoning', some(usage?.completion_tokens_details?.reasoning_tokens)],
    ['Queue', ms(receipt?.queue_ms)],
    ['Prefill', ms(receipt?.prefill_ms)],
    ['Decode', ms(receipt?.decode_ms)],
    ['First token here', ms(firstMs)],
    ['Seed', receipt?.seed],
    ['Kernels', receipt?.kernel_path?.join(', ')],
    ['Ended by', receipt?.stop_string ? JSON.stringify(receipt.stop_string) : finish],
    ['Request', receipt?.request_id ?? id],
  ];
  return rows.filter(([, value]) => value !== undefined);
}
