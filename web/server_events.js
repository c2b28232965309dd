// Server-sent events, as https://html.spec.whatwg.org/multipage/server-sent-events.html reads them; only `data` counts
// here. EventSource itself cannot POST.

// Splits a stream that may be cut anywhere into the data of its events. Feed it decoded text.
export class EventReader {
  #rest = "";
  #data = [];

  // The data of each event that `text` completes.
  push(text) {
    const lines = (this.#rest + text).split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop();
    const events = [];
    for (const line of lines) {
      if (line !== "") {
        this.#take(line);
      } else if (this.#data.length > 0) {
        events.push(this.#data.join("\n"));
        this.#data = [];
      }
    }
    return events;
  }

  #take(line) {
    const colon = line.indexOf(":");
    if ((colon < 0 ? line : line.slice(0, colon)) !== "data") return; // a comment (keep-alive) or another field
    this.#data.push(colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, ""));
  }
}
