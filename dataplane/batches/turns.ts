const MOST_REMEMBERED = 1_000;

/** Organizations whose batches were read or ended here: the one that had its turn last comes last (rule 4.5). */
export class Turns {
  readonly #organizations = new Set<string>();

  had(organizationId: string): void {
    this.#organizations.delete(organizationId);
    this.#organizations.add(organizationId);
    const [oldest] = this.#organizations;
    if (this.#organizations.size > MOST_REMEMBERED && oldest !== undefined)
      this.#organizations.delete(oldest);
  }

  /** In the order of their last turns, the longest ago first. */
  get organizations(): readonly string[] {
    return [...this.#organizations];
  }
}
