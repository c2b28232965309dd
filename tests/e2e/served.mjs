// A running `deepinfer serve` on the mini model, for tests in JavaScript; served.py is the same for Python.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createRequire } from "node:module";
import path from "node:path";
import readline from "node:readline";

export const root = path.resolve(import.meta.dirname, "../..");
export const model = "deepinfer-mini";
const binary = process.env.DEEPINFER_BINARY ?? path.join(root, "build/release/deepinfer");

// Packages of group "clients" in third_party.lock: `installed("openai")`.
export const installed = createRequire(path.join(root, ".tools/clients/node_modules/"));

export async function startServer(...options) {
  const command = ["serve", "--model", path.join(root, "models/mini"), "--served-model-name", model, "--port", "0"];
  const program = options.includes("--engine") ? path.join(path.dirname(binary), "deepinfer-scripted") : binary;
  const child = spawn(program, [...command, ...options], { stdio: ["ignore", "pipe", "pipe"] });
  let errors = "";
  child.stderr.on("data", (text) => (errors += text));
  for await (const line of readline.createInterface({ input: child.stdout })) {
    const url = /^listening on (http:\/\/127\.0\.0\.1:\d+)$/.exec(line)?.[1];
    if (!url) continue;
    child.stdout.resume();
    return {
      url,
      async stop() {
        if (child.exitCode !== null) throw new Error(`the server ended by itself with ${child.exitCode}: ${errors}`);
        child.kill("SIGINT");
        const [code] = await once(child, "exit");
        if (code !== 0) throw new Error(`the server ended with ${code}: ${errors}`);
      },
    };
  }
  throw new Error(`no "listening" line: ${errors}`);
}
