/** The end of this process, told to what is still under way when it waits for it no longer (rule 1.16). */
export class Shutdown {
  #hasCome = false;
  readonly #listeners = new Set<() => void>();

  get hasCome(): boolean {
    return this.#hasCome;
  }

  tell(): void {
    this.#hasCome = true;
    const listeners = [...this.#listeners];
    this.#listeners.clear();
    for (const listener of listeners) listener();
  }

  listen(listener: () => void): void {
    this.#listeners.add(listener);
  }

  forget(listener: () => void): void {
    this.#listeners.delete(listener);
  }
}
