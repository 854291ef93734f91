import { Roster, type Seated } from "./roster.ts";

/** Receives the end of the process. */
export interface ShutdownListener extends Seated {
  readonly processEnds: () => void;
}

/** Signals work in progress that the process no longer waits for it (rule 1.16). */
export class Shutdown {
  #hasCome = false;
  readonly #listeners = new Roster<ShutdownListener>();

  get hasCome(): boolean {
    return this.#hasCome;
  }

  tell(): void {
    this.#hasCome = true;
    // Iterates over a copy, because a listener may remove others.
    const listeners = [...this.#listeners];
    for (const listener of listeners) {
      this.forget(listener);
      listener.processEnds();
    }
  }

  listen(processEnds: () => void): ShutdownListener {
    const listener = { seat: -1, processEnds };
    this.#listeners.add(listener);
    return listener;
  }

  forget(listener: ShutdownListener): void {
    this.#listeners.delete(listener);
  }
}
