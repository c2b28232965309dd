// Takes docs/planner-desktop.png, docs/planner-published.png and docs/planner-phone.png anew, of the page as a file:
//   node tests/page/planner_screenshots.mjs
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { root } from "../e2e/served.mjs";
import { PlannerPage, sizes, startBrowser } from "./planner_browser.mjs";

const desktop = { viewport: { width: 1280, height: 900 }, colorScheme: "light" };
const traffic = "deployment.requests=400&deployment.hit=80";
const pictures = {
  "planner-desktop": [`#${traffic}`, desktop],
  "planner-published": ["#tab=published", desktop],
  "planner-phone": [`#hardware=cpu&deployment.requests=5`, { viewport: sizes.phone, colorScheme: "dark", deviceScaleFactor: 2 }],
};

const folder = mkdtempSync(path.join(os.tmpdir(), "planner-"));
const file = path.join(folder, "planner.html");
execFileSync(path.join(root, "build/release/deepinfer"), ["plan", "--page", file]);
const browser = await startBrowser();
for (const [name, [hash, options]] of Object.entries(pictures)) {
  const planner = await PlannerPage.open(browser, pathToFileURL(file).href + hash, options);
  if (name === "planner-published") await planner.page.locator("#figure-mean_revenue > summary").first().click();
  if (name === "planner-phone") await planner.page.getByRole("region", { name: "Summary" }).scrollIntoViewIfNeeded();
  if (name === "planner-phone") await planner.page.evaluate(() => document.getElementById("answers").scrollIntoView());
  await planner.page.screenshot({ path: path.join(root, "docs", `${name}.png`) });
  await planner.close();
}
await browser.close();
rmSync(folder, { recursive: true });
