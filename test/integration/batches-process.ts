/** A data plane's batch worker in a process of its own, to be killed: `node batches-process.ts OPTIONS-AS-JSON`. */
import { BatchPlane, type PlaneOptions, type Stores } from "./batches-world.ts";

const { stores, options } = JSON.parse(process.argv[2] ?? "{}") as { stores: Stores; options: PlaneOptions };
await BatchPlane.open(stores, options);
process.stdout.write("ready\n");
