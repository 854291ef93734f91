/** Edits of the declared configuration while it is served. */
import type { SoakWorld } from "./world.ts";

const MOST_GRANTS = 90;

/** One edit: a grant, a price, a route that comes or goes, a file that cannot be read. */
export function edit(world: SoakWorld, random: () => number): void {
  const { grants, priced, extra, broken } = world.edited;
  const draw = random();
  if (draw < 0.4 && grants < MOST_GRANTS) world.edit({ grants: grants + 1 });
  else if (draw < 0.6) world.edit({ priced: priced === 0 ? 1 : 0 });
  else if (draw < 0.9) world.edit({ extra: extra === null ? `m-extra-${Math.floor(random() * 1e6)}` : null });
  else world.edit({ broken: !broken });
}
