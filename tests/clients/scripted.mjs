// The scripted server of conftest.py for tests in JavaScript.
import { mkdtemp, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { startServer } from "../e2e/served.mjs";

export const weather = { type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false };

const call = [
  "\n\n<｜DSML｜ calls>",
  '<｜DSML｜ invoke name="get_weather">',
  '<｜DSML｜ parameter name="city" string="true">Paris</｜DSML｜ parameter>',
  "</｜DSML｜ invoke>",
  "</｜DSML｜ calls>",
].join("\n");
const replies = [
  { match: "sunny, 21 C", reply: "The tool answered.</think>It is sunny in Paris.", repeat: true },
  { match: "Weather in Paris", reply: `I call it.</think>${call}`, repeat: true },
  { match: "Say hello", reply: "A greeting.</think>Hello there.", repeat: true },
];

export async function startScriptedServer() {
  const script = path.join(await mkdtemp(path.join(os.tmpdir(), "scripted-")), "script.jsonl");
  await writeFile(script, replies.map((reply) => `${JSON.stringify(reply)}\n`).join(""));
  return startServer("--engine", `scripted:${script}`);
}
