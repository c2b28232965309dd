// Debian's Chromium, driven by playwright-core, on the page of a running server.
import { installed } from "../e2e/served.mjs";

const { chromium } = installed("playwright-core");

export const sizes = { desktop: { width: 1100, height: 760 }, phone: { width: 390, height: 780 } };

export function startBrowser() {
  const args = process.getuid() === 0 ? ["--no-sandbox"] : []; // Chromium's sandbox refuses root
  return chromium.launch({ executablePath: "/usr/bin/chromium", args });
}

// What a reader sees and does. `problems` collects errors of the page and requests to anything but its server.
export class ChatPage {
  problems = [];

  static async open(browser, url, options = {}) {
    const { settings, ...context_options } = options;
    const context = await browser.newContext({ viewport: sizes.desktop, reducedMotion: "reduce", ...context_options });
    if (settings) {
      const stored = JSON.stringify(settings);
      await context.addInitScript(`localStorage["deepinfer.settings"] ??= ${JSON.stringify(stored)}`);
    }
    const chat = new ChatPage(context, await context.newPage());
    chat.page.on("pageerror", (error) => chat.problems.push(String(error)));
    chat.page.on("console", (line) => line.type() === "error" && chat.problems.push(line.text()));
    chat.page.on("request", (request) => {
      if (!request.url().startsWith(`${url}/`) && !request.url().startsWith("data:")) chat.problems.push(request.url());
    });
    await chat.page.goto(`${url}/`);
    return chat;
  }

  constructor(context, page) {
    this.context = context;
    this.page = page;
    this.box = page.getByRole("textbox", { name: "Message", exact: true });
    this.users = page.getByRole("article", { name: "You" });
    this.answers = page.getByRole("article", { name: "Answer" });
    this.stopButton = page.getByRole("button", { name: "Stop" });
  }

  async say(text) {
    await this.box.fill(text);
    await this.page.getByRole("button", { name: "Send" }).and(this.page.locator(":enabled")).waitFor();
    await this.box.press("Enter");
  }

  // The newest answer, once it is whole.
  async answer() {
    const newest = this.answers.last();
    await newest.and(this.page.locator("[aria-busy=false]")).waitFor();
    return newest;
  }

  async ask(text) {
    await this.say(text);
    return this.answer();
  }

  // Puts the answers of the model in place: each request takes the next list of deltas and ends with `finish_reason`.
  async script(...answers) {
    const requests = [];
    await this.page.route("**/v1/chat/completions", (route) => {
      requests.push(route.request().postDataJSON());
      const { deltas, finish_reason = "stop" } = answers[requests.length - 1];
      const chunks = deltas.map((delta) => ({ choices: [{ index: 0, delta, finish_reason: null }], usage: null }));
      chunks.push({ choices: [{ index: 0, delta: {}, finish_reason }], usage: { completion_tokens: deltas.length } });
      const lines = [...chunks.map((chunk) => JSON.stringify(chunk)), "[DONE]"].map((line) => `data: ${line}\n\n`);
      return route.fulfill({ contentType: "text/event-stream", body: `: keep-alive\n\n${lines.join("")}` });
    });
    return requests;
  }

  async close() {
    await this.context.close();
  }
}
