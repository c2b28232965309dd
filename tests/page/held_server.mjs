// Stands between the page and a server and lets no streamed answer end: after `kEvents` events the rest is held back,
// until the reader goes away. So a test has all the time it needs in the middle of an answer of the real model.
// Requests for a path in `cut` are hung up on, as by a server that is gone.
import http from "node:http";

const kEvents = 8;

export async function holdAnswers(url) {
  const open = new Set(); // answers that a reader still waits for
  const cut = new Set();
  const proxy = http.createServer((request, response) => {
    const { method, url: path, headers } = request;
    if (cut.has(path)) return request.socket.destroy();
    const upstream = http.request(url + path, { method, headers }, (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      if (!answer.headers["content-type"].startsWith("text/event-stream")) return answer.pipe(response);
      open.add(response);
      let events = 0;
      answer.on("data", (data) => {
        for (const event of data.toString().split(/(?<=\n\n)/)) if (events++ < kEvents) response.write(event);
      });
    });
    response.on("close", () => {
      open.delete(response);
      upstream.destroy();
    });
    upstream.on("error", () => response.destroy());
    request.pipe(upstream);
  });
  await new Promise((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${proxy.address().port}`, open, cut, stop: () => proxy.close() && proxy.closeAllConnections() };
}
