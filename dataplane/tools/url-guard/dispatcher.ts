/**
 * An undici dispatcher that can only reach what the guard allows. Every new connection is judged where it is made: the
 * name is resolved here, all its addresses are judged, and the socket connects to a judged address, so that no second DNS
 * answer can differ. No proxy setting of the environment is read.
 */
import { connect as connectTcp, isIP, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import { Agent, type buildConnector, type Dispatcher } from "undici";
import { judgeAddress, judgePort, type EgressRules } from "./address.ts";
import { boundOverhead, overheadBounded, type OverheadLimits } from "../../upstream/overhead.ts";
import { connected } from "./connected.ts";
import { isInternalName, judgeUrl } from "./judge-url.ts";
import type { OwnAddresses } from "./own-addresses.ts";
import { UnresolvedName, type Resolver } from "./resolver.ts";
import { openTunnel } from "./tunnel.ts";

export interface GuardOptions {
  readonly rules: EgressRules;
  readonly resolver: Resolver;
  /** A forward proxy; with `resolves` it gets names, else judged address literals. */
  readonly proxy: { readonly url: string; readonly resolves: boolean } | null;
  /** Ends every connection that is still being made. */
  readonly signal: AbortSignal;
  /** Certificate authorities to trust instead of the system's, PEM. */
  readonly ca?: string;
  /** Addresses that are never connected to, whatever the rules open. */
  readonly own?: OwnAddresses;
  /** The organization of these connections, where models choose the names. */
  readonly owner?: string;
}

/** Thrown (as the cause of undici's error) when the guard refused a connection: nothing was connected. */
export class ConnectionRefusedByGuard extends Error {
  constructor(reason: string) {
    super(reason);
    this.name = "ConnectionRefusedByGuard";
  }
}

/** How long one address may take before the next one is tried. */
const ADDRESS_TIMEOUT_MS = 4_000;
const MAX_ADDRESSES_TRIED = 4;
const MAX_HEADER_BYTES = 32 * 1024;
/** Enough for heads of a dozen answers, and for chunks of two dozen bytes. */
const OVERHEAD: OverheadLimits = { freeBytes: 512 * 1024, perContentByte: 1 / 4 };

/** Makes the dispatcher for one fetch with its redirects. Close it afterwards: tenants share no connections. */
export function guardedDispatcher(options: GuardOptions): Dispatcher {
  const agent = new Agent({
    pipelining: 1,
    connections: 2,
    allowH2: false,
    maxHeaderSize: MAX_HEADER_BYTES,
    connect: (origin, callback) => {
      const guarded = connectGuarded(`${origin.protocol}//${origin.host ?? ""}`, options);
      const connecting = guarded.then((socket) => boundOverhead(socket, OVERHEAD));
      // An error that undici throws in its callback does not matter here; the fetch ends by its signal.
      answer(connecting, callback).catch(() => undefined);
    },
  });
  return agent.compose(overheadBounded);
}

/** Passes the outcome to undici, whose connectors answer by callback. */
async function answer(connecting: Promise<Socket>, callback: buildConnector.Callback): Promise<void> {
  let socket: Socket;
  try {
    socket = await connecting;
  } catch (error) {
    callback(error instanceof Error ? error : new Error(String(error)), null);
    return;
  }
  callback(null, socket);
}

/** Judges an origin, connects to it and speaks TLS where the scheme asks for it. */
async function connectGuarded(origin: string, options: GuardOptions): Promise<Socket> {
  const verdict = judgeUrl(origin, options.rules);
  if (!verdict.allowed) throw new ConnectionRefusedByGuard(verdict.reason);
  const { host, port, literal } = verdict;
  const targets = literal ? [host] : await judgedTargets(host, options);
  if (!targets.every((target) => judgePort(target, port, options.rules)))
    throw new ConnectionRefusedByGuard("port not allowed");
  await refuseOwn(targets, port, options);
  const socket = await firstConnected(targets, port, options);
  return verdict.url.protocol === "https:" ? await secure(socket, host, literal, options) : socket;
}

/** Returns the targets for a name: its addresses, all of them judged, or the name itself for a proxy that resolves. */
async function judgedTargets(name: string, options: GuardOptions): Promise<readonly string[]> {
  if (options.proxy?.resolves === true) {
    if (isInternalName(name)) throw new ConnectionRefusedByGuard("internal name");
    return [name];
  }
  const addresses = await options.resolver.resolve(name, options.signal);
  if (addresses.length === 0) throw new UnresolvedName();
  for (const address of addresses) {
    const verdict = judgeAddress(address, options.rules);
    // One bad address among good ones is a sign of DNS rebinding: the whole name is refused.
    if (!verdict.allowed) throw new ConnectionRefusedByGuard(verdict.reason);
  }
  return addresses;
}

/** Refuses the release's own addresses, and a proxy at one of them (rule 8.6). */
async function refuseOwn(
  targets: readonly string[],
  port: number,
  { own, owner = "", proxy }: GuardOptions,
): Promise<void> {
  if (own === undefined) return;
  const isOwn = async (target: string) =>
    isIP(target) === 0 ? await own.holdsName(target, port, owner) : await own.holds(target, port);
  for (const target of targets)
    if (await isOwn(target)) throw new ConnectionRefusedByGuard("an address of the gateway itself");
  if (proxy === null) return;
  const { hostname, port: given, protocol } = new URL(proxy.url);
  const proxyPort = given === "" ? (protocol === "https:" ? 443 : 80) : Number(given);
  if (await own.holdsName(hostname, proxyPort, null))
    throw new ConnectionRefusedByGuard("the proxy is an address of the gateway itself");
}

async function firstConnected(
  targets: readonly string[],
  port: number,
  options: GuardOptions,
): Promise<Socket> {
  let failure: unknown;
  for (const target of targets.slice(0, MAX_ADDRESSES_TRIED)) {
    options.signal.throwIfAborted();
    const signal = AbortSignal.any([options.signal, AbortSignal.timeout(ADDRESS_TIMEOUT_MS)]);
    try {
      return options.proxy === null
        ? await connected(connectTcp({ host: target, port, noDelay: true }), "connect", signal)
        : await openTunnel(options.proxy.url, target, port, signal);
    } catch (error) {
      failure = error;
    }
  }
  throw failure;
}

/** Starts TLS with the name's SNI and identity, over whatever address or tunnel. */
async function secure(
  socket: Socket,
  host: string,
  literal: boolean,
  options: GuardOptions,
): Promise<Socket> {
  const name = host.replace(/\.$/, "");
  const signal = AbortSignal.any([options.signal, AbortSignal.timeout(ADDRESS_TIMEOUT_MS)]);
  const secured = connectTls({
    socket,
    host: name,
    ...(literal ? {} : { servername: name }),
    ALPNProtocols: ["http/1.1"],
    rejectUnauthorized: true,
    ...(options.ca === undefined ? {} : { ca: options.ca }),
  });
  try {
    return await connected(secured, "secureConnect", signal);
  } catch (error) {
    socket.destroy();
    throw error;
  }
}
