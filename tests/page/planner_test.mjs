// The planner's page: its module against the C++ formulas, and the page as a reader uses it, from a server and as a file.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { after, afterEach, before, test } from "node:test";
import { pathToFileURL } from "node:url";
import { installed, root, startServer } from "../e2e/served.mjs";
import { PlannerPage, sizes, startBrowser } from "./planner_browser.mjs";

const build = path.join(root, "build/release");
const seed = 20261201;
const randomInputs = 1000;

let folder, file, server, browser, planner;

before(async () => {
  folder = mkdtempSync(path.join(os.tmpdir(), "planner-"));
  file = path.join(folder, "planner.html");
  execFileSync(path.join(build, "deepinfer"), ["plan", "--page", file]);
  [server, browser] = await Promise.all([startServer(), startBrowser()]);
});

after(async () => {
  await browser?.close();
  await server?.stop();
  rmSync(folder, { recursive: true });
});

afterEach(async () => {
  await planner?.close();
  planner = undefined;
});

async function open(hash = "", options = {}) {
  planner = await PlannerPage.open(browser, `${server.url}/planner${hash}`, options);
  return planner;
}

const assertNoProblems = () => assert.deepEqual(planner.problems, []);

// ---- The module against the formulas ----

// The page's pure part as a module of its own, out of the same sources.
async function logic() {
  const target = path.join(folder, "logic.mjs");
  const search = [path.join(root, ".tools/build/node_modules"), path.join(build, "src/gateway/planner")].join(":");
  execFileSync("esbuild", ["--bundle", "--format=esm", `--outfile=${target}`, "--log-level=warning"], {
    cwd: path.join(root, "web/planner"),
    input: 'export * from "./numbers.js"; export * from "./plan.js"; export * from "./state.js";',
    env: { ...process.env, NODE_PATH: search },
  });
  return import(pathToFileURL(target));
}

const asNumbers = (list) => list.map(Number);

test(`28 figures, all others and ${randomInputs} random inputs of each model are equal to the last bit`, async () => {
  const { models, computeModel, writeValue, notesOf, agrees, sensitivity, cpuServer, planDeployment } = await logic();
  const output = execFileSync(path.join(build, "tests/planner_vectors"), [String(seed), String(randomInputs)], { encoding: "utf8", maxBuffer: 1 << 30 });
  const counts = {};
  for (const line of output.trim().split("\n")) {
    const one = JSON.parse(line);
    if (one.server) {
      const made = cpuServer(one.server, one.speed);
      assert.equal(made.problem === undefined, one.ok, line);
      if (one.ok) {
        assert.deepEqual(made.inputs, one.hardware, `seed ${seed}`);
        assert.equal(made.label, one.label);
        const state = { hardware: "cpu", changes: { server: one.server, deployment: { user_speed: one.speed } } };
        assert.deepEqual(planDeployment(state).values, asNumbers(one.values), `seed ${seed}`);
      }
      continue;
    }
    const model = models[one.model];
    const values = model.compute(asNumbers(one.inputs));
    assert.deepEqual(values.slice(model.inputs.length), asNumbers(one.figures), `${one.model}, seed ${seed}`);
    const entries = [...model.inputs, ...model.figures];
    assert.deepEqual(values.map((value, i) => writeValue(value, entries[i])), one.texts);
    assert.deepEqual(notesOf(model, values), one.notes);
    assert.deepEqual(model.figures.flatMap((figure, i) => (figure.claim ? [agrees(figure, values[model.inputs.length + i])] : [])), one.agrees);
    const effects = sensitivity(model, values, model.figures.at(-1).id);
    assert.deepEqual(effects.map(({ input, down, up, atLow, atHigh }) => ({ id: input.id, ends: [down, up, atLow, atHigh] })), one.strongest.map(({ id, ends }) => ({ id, ends: asNumbers(ends) })));
    counts[one.model] = (counts[one.model] ?? 0) + 1;
  }
  assert.deepEqual(counts, { published: randomInputs + 1, deployment: randomInputs + 1, server: randomInputs + 1 });
  const published = models.published;
  const numbers = new Set(published.figures.map((figure) => figure.number).filter((number) => number > 0));
  assert.equal(numbers.size, 28);
  assert.equal(computeModel(published).length, published.inputs.length + published.figures.length);
});

test("an address is read as it was written, and nonsense in it is passed over", async () => {
  const { parseState, writeState, fresh } = await logic();
  assert.deepEqual(parseState(""), fresh());
  const state = { tab: "server", hardware: "cpu", changes: { deployment: { requests: 80, hit: 0.5 }, server: { cores: 96 } } };
  assert.deepEqual(parseState(writeState(state)), state);
  for (const hash of ["#tab=x&hardware=y", "#deployment.requests=-1", "#deployment.requests=x", "#__proto__.x=1", "#constructor.name=1", "#deployment.=3", "#%", "#deployment.nothing=1"]) {
    assert.deepEqual(parseState(hash), fresh(), hash);
  }
});

// ---- The page ----

test("the page answers at once to a field and a slider", async () => {
  const { page } = await open();
  const before = await planner.value("input_rate");
  await planner.field("Requests").fill("100");
  assert.notEqual(await planner.value("input_rate"), before);
  assert.equal(await planner.value("input_rate"), "1,200,000 tokens/s");
  const slider = page.getByRole("slider", { name: "Requests, slider" });
  await slider.focus();
  await slider.press("End");
  assert.equal(await planner.field("Requests").inputValue(), "1000");
  assert.equal(await planner.value("input_rate"), "12,000,000 tokens/s");
  await page.getByRole("button", { name: "Reset Requests" }).click();
  assert.equal(await planner.value("input_rate"), before);
  assertNoProblems();
});

test("a bad value is refused beside its field, and the answers stay", async () => {
  const { page } = await open();
  const before = await planner.value("input_rate");
  for (const [text, message] of [["-5", "found -5 requests/s, expected a number above 0"], ["x", "found 'x', expected a number above 0"], ["", "found '', expected a number above 0"], ["0", "found 0 requests/s, expected a number above 0"]]) {
    await planner.field("Requests").fill(text);
    assert.equal(await page.getByRole("alert").innerText(), message);
    assert.equal(await planner.field("Requests").getAttribute("aria-invalid"), "true");
    assert.equal(await planner.value("input_rate"), before);
  }
  await planner.field("Input found in the cache").fill("101");
  assert.match(await page.getByRole("alert").innerText(), /expected 0 % to 100 %/);
});

test("a figure says why: formula, numbers, source, finding", async () => {
  const { page } = await open();
  await planner.tab("The published service");
  const figure = page.locator("#figure-mean_revenue").first();
  assert.match(await figure.locator("summary").innerText(), /\$39\.10 per card-hour[^]*2\.9 % high[^]*\(a\)/);
  await figure.locator("summary").focus();
  await page.keyboard.press("Enter");
  const why = await figure.locator(".why").innerText();
  for (const part of ["prefill_share × prefill_revenue + (1 − prefill_share) × decode_revenue", "50 % × $47.95 per card-hour + (1 − 50 %) × $30.24 per card-hour", "(a) $39.10 per card-hour is 2.884 % more", "confidence"]) {
    assert.ok(why.includes(part), `${part} in ${why}`);
  }
  assert.equal(await page.locator(".findings dt").count(), 17);
  assertNoProblems();
});

test("a link shares what was changed", async () => {
  const { page } = await open();
  await planner.field("Requests").fill("77");
  await page.getByLabel("Hardware", { exact: true }).selectOption("cpu");
  await planner.tab("One CPU server");
  const before = page.url();
  await planner.field("Cores of a socket").fill("96");
  await page.waitForURL((url) => url.href !== before);
  const address = page.url();
  await planner.close();
  await open(new URL(address).hash);
  assert.equal(await planner.field("Cores of a socket").inputValue(), "96");
  await planner.tab("Your deployment");
  assert.equal(await planner.field("Requests").inputValue(), "77");
  assert.match(await planner.answers.innerText(), /servers, prefill \+ decode/);
  assertNoProblems();
});

test("a server that can't reach the speed says so", async () => {
  await open("#hardware=cpu&deployment.user_speed=200");
  assert.match(await planner.page.getByRole("alert").innerText(), /One answer alone reaches/);
});

test("CSV and JSON of the page go into deepinfer plan", async () => {
  const { page } = await open("#deployment.requests=33");
  for (const kind of ["CSV", "JSON"]) {
    const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: kind }).click()]);
    const saved = path.join(folder, download.suggestedFilename());
    await download.saveAs(saved);
    const plan = JSON.parse(execFileSync(path.join(build, "deepinfer"), ["plan", "--inputs", saved, "--json"], { encoding: "utf8" }));
    assert.equal(plan.inputs.find(({ name }) => name === "requests").value, 33);
    assert.equal(plan.figures.find(({ name }) => name === "ttft").text, await planner.value("ttft"));
  }
});

test("charts are drawn, follow the numbers and have a table each", async () => {
  const { page } = await open();
  const charts = page.locator("figure.chart");
  assert.equal(await charts.count(), 4);
  for (const chart of await charts.all()) {
    assert.ok((await chart.locator("svg .ct-bar, svg .ct-line").count()) > 0);
    assert.ok((await chart.locator("tbody tr").count()) > 1);
  }
  const bars = page.locator("figure.chart").first().locator(".ct-bar");
  const shares = () => bars.evaluateAll((lines) => lines.map((line) => line.x2.baseVal.value - line.x1.baseVal.value)).then(([store, decode, prefill]) => prefill / decode);
  const before = await shares();
  await planner.field("Input found in the cache").fill("0"); // prefill costs more then
  await page.waitForFunction(() => document.querySelector("#figure-prefill_cards .value").textContent === "16 cards");
  for (const deadline = Date.now() + 10_000; (await shares()) < 1.5 * before; ) assert.ok(Date.now() < deadline, "the bars stay as they were");
  const squares = page.locator(".cluster .decode");
  assert.ok((await squares.count()) > 30);
  assertNoProblems();
});

test("the file opens without a server and asks nobody", async () => {
  planner = await PlannerPage.open(browser, pathToFileURL(file).href);
  await planner.field("Requests").fill("100");
  assert.equal(await planner.value("input_rate"), "1,200,000 tokens/s");
  assert.match(planner.page.url(), /#deployment\.requests=100$/);
  await planner.page.reload();
  assert.equal(await planner.field("Requests").inputValue(), "100");
  assertNoProblems();
});

test("a server sends the same bytes, with a policy that allows no connection", async () => {
  const response = await fetch(`${server.url}/planner`);
  assert.equal(await response.text(), readFileSync(file, "utf8"));
  const policy = response.headers.get("content-security-policy");
  assert.match(policy, /default-src 'none'; script-src 'sha256-[A-Za-z0-9+/]{43}='/);
  assert.ok(!policy.includes("connect-src") && !policy.includes("unsafe-eval"));
});

test("no part of the page fails the accessibility rules, light or dark, desktop or phone", async () => {
  const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"];
  for (const [colorScheme, viewport, tabs] of [["light", sizes.desktop, ["", "#tab=server"]], ["dark", sizes.phone, ["", "#tab=published"]]]) {
    for (const tab of tabs) {
      await open(tab, { colorScheme, viewport });
      await planner.page.evaluate(() => document.querySelectorAll("details").forEach((one) => (one.open = true)));
      await planner.page.evaluate(installed("axe-core").source);
      const { violations } = await planner.page.evaluate((values) => window.axe.run(document, { runOnly: { type: "tag", values } }), tags);
      assert.deepEqual(violations.map(({ id, nodes }) => [id, nodes.slice(0, 2).map((node) => node.html.slice(0, 120))]), [], `${colorScheme} ${tab}`);
      assert.ok(await planner.page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${tab} is wider than the screen`);
      await planner.close();
    }
  }
  planner = undefined;
});

test("all of it works from the keyboard", async () => {
  const { page } = await open();
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "Skip to the answers");
  await page.keyboard.press("Enter");
  assert.equal(await page.evaluate(() => document.activeElement.id), "answers");
  await page.getByRole("button", { name: "The published service" }).focus();
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.title === "The published service · DeepInfer planner");
});
