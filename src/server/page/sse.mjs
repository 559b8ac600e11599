// Server-sent events from pieces of text that may be cut anywhere, inside a line end too.
export class SseParser {
  #rest = '';  // the line that has not ended
  #data = [];
  #event = '';
  #skipLineFeed = false;  // the piece before ended in CR; a LF now belongs to it

  // The events that are complete with this piece: [{event, data}].
  push(text) {
    const events = [];
    for (const line of this.#lines(text)) {
      if (line === '') {
        if (this.#data.length > 0) events.push({event: this.#event || 'message', data: this.#data.join('\n')});
        this.#data = [];
        this.#event = '';
      } else {
        this.#field(line);
      }
    }
    return events;
  }

  #lines(text) {
    if (text === '') return [];
    if (this.#skipLineFeed && text[0] === '\n') text = text.slice(1);
    this.#skipLineFeed = text.endsWith('\r');
    const lines = (this.#rest + text).split(/\r\n|\r|\n/);
    this.#rest = lines.pop();
    return lines;
  }

  #field(line) {
    const colon = line.indexOf(':');
    if (colon === 0) return;  // a comment keeps the connection awake
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (name === 'data') this.#data.push(value);
    if (name === 'event') this.#event = value;
  }
}

// Events of a response body; leaving the loop early closes the connection.
export async function* readEvents(body) {
  const reader = body.getReader();
  const decoder = new TextDecoder();  // keeps the first half of a cut character
  const parser = new SseParser();
  try {
    for (;;) {
      const {done, value} = await reader.read();
      if (done) return;
      yield* parser.push(decoder.decode(value, {stream: true}));
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
