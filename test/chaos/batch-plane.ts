/**
 * A data plane's batches in a process of its own, to be killed: `node batch-plane.ts OPTIONS-AS-JSON`. With
 * die-at.ts preloaded it kills itself at a step of batches/steps.ts.
 */
import { flushCompileCache } from "node:module";
import { BatchPlane, type PlaneOptions, type Stores } from "../integration/batches-world.ts";

const { stores, options } = JSON.parse(process.argv[2] ?? "{}") as { stores: Stores; options: PlaneOptions };
// One that is killed writes nothing at its end: the next one starts three times as fast by what stands here.
flushCompileCache();
const plane = await BatchPlane.open(stores, options);
process.stdout.write(`ready ${plane.server.url}\n`);
