/** Collects the client's field names (dotted) that a target has no place for; rule 2.2. */
export interface DropListener {
  dropped(field: string): void;
}
