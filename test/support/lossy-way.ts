import { once } from "node:events";
import { globalAgent } from "node:http";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { closeAfterFile } from "./close-after-file.ts";

/**
 * A way to a server that can lose an answer. Speak HTTP/1.1 on it, through Node's own agent: then the next thing the server
 * sends is the answer, and nobody goes on with a connection that was cut.
 */
export interface LossyWay {
  readonly url: string;
  /** Where it leads from now on; connections to where it led before are cut. */
  leadTo(serverUrl: string): void;
  /** Loses everything the server sends from now on, until it leads elsewhere. Resolves once something was lost. */
  loseNextAnswer(): Promise<void>;
}

export async function lossyWay(): Promise<LossyWay> {
  let target = new URL("http://127.0.0.1:1");
  let onLost: (() => void) | undefined;
  const sockets = new Set<Socket>();
  const track = (socket: Socket): Socket => {
    sockets.add(socket);
    return socket.on("error", () => {}).once("close", () => sockets.delete(socket));
  };
  const proxy = createServer((socket) => {
    const onward = track(connect(Number(target.port), target.hostname));
    track(socket)
      .pipe(onward)
      .once("close", () => socket.destroy());
    socket.once("close", () => onward.destroy());
    onward.on("data", (answer) => {
      if (onLost) onLost();
      else socket.write(answer);
    });
  }).listen(0, "127.0.0.1");
  await once(proxy, "listening");
  const cut = (): void => {
    for (const socket of sockets) socket.destroy();
    globalAgent.destroy();
  };
  closeAfterFile(async () => {
    cut();
    proxy.close();
  });
  return {
    url: `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`,
    leadTo(serverUrl) {
      target = new URL(serverUrl);
      onLost = undefined;
      cut();
    },
    loseNextAnswer: () =>
      new Promise((resolve) => {
        onLost = resolve;
      }),
  };
}
