/**
 * The part of a kubelet that delivers a snapshot: the projected volume of a pod, refreshed when an annotation of the
 * pod changes. The Secrets arrive one by one and in any order, each step visible by the atomic swap of a symbolic
 * link, so that the pod sees every mixture there can be.
 */
import { mkdir, mkdtemp, rename, rm, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { KubeClient } from "./kube-client.ts";

const LOOK_MS = 100;
/** Secrets of the volume, as the chart lists them. */
const slots = ["a", "b"].flatMap((slot) => [
  ...Array.from({ length: 8 }, (_, number) => `gapura-${slot}-${number}`),
  ...Array.from({ length: 2 }, (_, number) => `gapura-${slot}-credentials-${number}`),
]);

export class Kubelet {
  readonly #client: KubeClient;
  readonly #namespace: string;
  readonly #podPath: string;
  readonly #folder: string;
  /** Data of each Secret as the volume shows it now. */
  readonly #mounted = new Map<string, Readonly<Record<string, string>>>();
  #version: string | null = null;
  /** While true it looks away. */
  frozen = false;
  /** Between two Secrets it waits at most this long. */
  longestDelayMs = 0;

  constructor(client: KubeClient, namespace: string, podPath: string, folder: string) {
    this.#client = client;
    this.#namespace = namespace;
    this.#podPath = podPath;
    this.#folder = folder;
  }

  /** Mounts the volume, and refreshes it at each change of the annotation until the signal aborts. */
  async run(signal: AbortSignal): Promise<void> {
    let seen: string | undefined = "";
    while (!signal.aborted) {
      try {
        const poked = await this.#annotation();
        if (!this.frozen && poked !== seen) {
          await this.#materialise(signal);
          seen = poked;
        }
      } catch {
        // The API server is away: the volume stays as it is, and the next look tries again.
      }
      await sleep(LOOK_MS, undefined, { signal }).catch(() => {});
    }
  }

  async #annotation(): Promise<string | undefined> {
    const { body } = await this.#client.call("GET", this.#podPath);
    const { metadata } = body as { metadata?: { annotations?: Record<string, string> } };
    return metadata?.annotations?.["gapura.dev/snapshot-serial"];
  }

  async #materialise(signal: AbortSignal): Promise<void> {
    // What the volume showed of a Secret stays until its turn comes.
    const order = slots.toSorted(() => Math.random() - 0.5);
    for (const [position, name] of order.entries()) {
      if (signal.aborted) return;
      await sleep(Math.random() * this.longestDelayMs, undefined, { signal }).catch(() => {});
      const path = `/api/v1/namespaces/${this.#namespace}/secrets/${name}`;
      const { status, body } = await this.#client.call("GET", path);
      const data = status === 200 ? ((body as { data?: Record<string, string> }).data ?? {}) : {};
      this.#mounted.set(name, data);
      if (position % 5 === 4) await this.#swap();
    }
  }

  async #swap(): Promise<void> {
    await mkdir(this.#folder, { recursive: true });
    const version = await mkdtemp(join(this.#folder, "..v-"));
    for (const data of this.#mounted.values())
      for (const [file, value] of Object.entries(data))
        await writeFile(join(version, file), Buffer.from(value, "base64"));
    await symlink(version, join(this.#folder, "..data_tmp"));
    await rename(join(this.#folder, "..data_tmp"), join(this.#folder, "..data"));
    if (this.#version !== null) await rm(this.#version, { recursive: true, force: true });
    this.#version = version;
  }
}
