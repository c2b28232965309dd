// Takes docs/page-desktop.png and docs/page-phone.png anew, with the mini model's own answers:
//   node tests/page/screenshots.mjs
import path from "node:path";
import { root, startServer } from "../e2e/served.mjs";
import { ChatPage, sizes, startBrowser } from "./browser.mjs";

const settings = { temperature: "0", max_tokens: "120" };
const pictures = {
  "page-desktop": { viewport: sizes.desktop, colorScheme: "light" },
  "page-phone": { viewport: sizes.phone, colorScheme: "dark", deviceScaleFactor: 2 },
};

const server = await startServer();
const browser = await startBrowser();
for (const [name, options] of Object.entries(pictures)) {
  const chat = await ChatPage.open(browser, server.url, { settings, ...options });
  await chat.ask("What is the capital of France?");
  await chat.page.keyboard.press("Control+Shift+O");
  await chat.ask("Hello!");
  const answer = await chat.ask("What is 34 + 57?");
  await answer.locator("summary").click();
  await chat.page.screenshot({ path: path.join(root, "docs", `${name}.png`) });
  await chat.close();
}
await browser.close();
await server.stop();
