// The planner's page in Chromium, from a server or from a file.
import { sizes, startBrowser } from "./browser.mjs";

export { sizes, startBrowser };

export class PlannerPage {
  problems = [];

  static async open(browser, address, options = {}) {
    const context = await browser.newContext({ viewport: sizes.desktop, reducedMotion: "reduce", acceptDownloads: true, ...options });
    const planner = new PlannerPage(context, await context.newPage());
    const { page, problems } = planner;
    page.on("pageerror", (error) => problems.push(String(error)));
    page.on("console", (line) => line.type() === "error" && problems.push(line.text()));
    page.on("request", (request) => {
      if (!request.url().startsWith(address.split("#")[0]) && !/^(data|blob):/.test(request.url())) problems.push(request.url());
    });
    await page.goto(address);
    await page.getByRole("heading", { name: "DeepInfer planner" }).waitFor();
    return planner;
  }

  constructor(context, page) {
    this.context = context;
    this.page = page;
    this.answers = page.getByRole("main");
  }

  tab(name) {
    return this.page.getByRole("navigation", { name: "Models" }).getByRole("button", { name }).click();
  }

  field(label) {
    return this.page.getByRole("textbox", { name: label, exact: true });
  }

  // The value that a figure shows.
  value(id) {
    return this.page.locator(`#figure-${id} > summary .value`).first().innerText();
  }

  close() {
    return this.context.close();
  }
}
