/** The desk of whoever runs a release: helm and kubectl on the path, and the gateway's address. */
import { chmod, mkdir, symlink, writeFile } from "node:fs/promises";
import { createServer, request, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { dirname, join, resolve } from "node:path";
import { kubeTool } from "../charts/helm.ts";
import type { Controllers } from "./controllers.ts";

const root = resolve(import.meta.dirname, "../..");
/** Of the gateway's server: what a kubelet would tell kubectl. */
const ENVIRONMENT = "/kubelet/environment";

export interface Desk {
  readonly gateway: string;
  /** For the front of PATH. */
  readonly tools: string;
  close(): void;
}

export async function openDesk(folder: string, controllers: Controllers): Promise<Desk> {
  const server = await startGateway(controllers);
  const { port } = server.address() as AddressInfo;
  const gateway = `http://127.0.0.1:${port}`;
  const tools = join(folder, "bin");
  await mkdir(tools);
  await symlink(await kubeTool("helm"), join(tools, "helm"));
  // There is no kubelet: exec is answered here, everything else by the API server.
  const kubectl = `#!/bin/bash
case " $* " in
*" exec deploy/gapura-data-plane -- "*)
  while [ "$1" != -- ]; do shift; done
  shift
  mapfile -t -d '' variables < <(curl --silent '${gateway}${ENVIRONMENT}')
  cd '${root}' && exec env --ignore-environment "\${variables[@]}" "PATH=${dirname(process.execPath)}:$PATH" "$@" ;;
esac
exec '${await kubeTool("kubectl")}' "$@"
`;
  await writeFile(join(tools, "kubectl"), kubectl);
  await chmod(join(tools, "kubectl"), 0o755);
  return {
    gateway,
    tools,
    close: () => {
      server.close();
      server.closeAllConnections();
    },
  };
}

/** A Service: each request goes to the next pod that takes requests. */
async function startGateway(controllers: Controllers): Promise<Server> {
  let turn = 0;
  const server = createServer((incoming, outgoing) => {
    const { method, url: path, headers } = incoming;
    if (path === ENVIRONMENT) {
      const environment = Object.entries(controllers.pods[0]?.environment ?? {});
      return outgoing.end(environment.map(([name, value]) => `${name}=${value}\0`).join(""));
    }
    const endpoints = controllers.pods.filter(({ isEndpoint }) => isEndpoint);
    const pod = endpoints[(turn += 1) % endpoints.length];
    if (pod === undefined) return outgoing.writeHead(503).end("no endpoint");
    const onward = request(`${pod.url}${path}`, { method, headers }, (answer) => {
      outgoing.writeHead(answer.statusCode ?? 502, answer.headers);
      answer.pipe(outgoing);
    });
    onward.on("error", () => outgoing.destroy());
    incoming.pipe(onward);
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  return server;
}
