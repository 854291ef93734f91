import { Roster, type Seated } from "./roster.ts";

/** Who is to be told that the process ends. */
export interface ShutdownListener extends Seated {
  readonly processEnds: () => void;
}

/** The end of this process, told to what is still under way when it waits for it no longer (rule 1.16). */
export class Shutdown {
  #hasCome = false;
  readonly #listeners = new Roster<ShutdownListener>();

  get hasCome(): boolean {
    return this.#hasCome;
  }

  tell(): void {
    this.#hasCome = true;
    // A copy: a listener that is told may have others forgotten.
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
