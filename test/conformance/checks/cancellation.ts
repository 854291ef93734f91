/** Clients that go away. */
import { setTimeout as sleep } from "node:timers/promises";
import type { Check, Probe } from "../check.ts";
import type { Answer } from "../client.ts";
import type { Faults } from "../../fakes/upstream/script.ts";
import { hello, scripted, short } from "../prompts.ts";

const LEAVE_AFTER_BYTES = 64;
/**
 * The upstream has to hear of it within so long: a gateway may read on for a report of usage (ours for two seconds, rule 1.11), and
 * a busy machine takes its time.
 */
const NOTICE_MS = 10_000;
const LOOK_MS = 100;

const words = Array.from({ length: 100 }, (_, n) => `word${n}`).join(" ");

/** A request whose client leaves; then whether the upstream heard of it. */
async function leave(probe: Probe, faults: Faults, left: Answer["question"]["leave"]): Promise<void> {
  const mark = `left-${probe.form.dialect}-${probe.model}-${JSON.stringify(faults).length}-${Date.now()}`;
  const prompt = `${mark} ${scripted({ answer: { parts: [{ type: "text", text: words }] }, faults })}`;
  const asked = probe.form.body({ prompt, stream: true });
  const answer = await probe.goodPost(asked, left === undefined ? {} : { leave: left });
  const until = performance.now() + NOTICE_MS;
  for (;;) {
    const log = (await probe.ground.upstream?.()) ?? [];
    // The newest, first: other checks have sent megabytes, and whoever searches them keeps the upstream from its work.
    const seen = log.findLast(({ text }) => text.includes(mark));
    if (seen?.outcome === "aborted") return;
    if (performance.now() > until)
      return probe.fault(`the upstream's request is still ${seen?.outcome ?? "unseen"}`, answer);
    await sleep(LOOK_MS);
  }
}

export const cancellation: readonly Check[] = [
  {
    name: "cancel",
    subject: "cancellation",
    rule: "official",
    says: "After a client went away in the middle of a stream, the next request of its key is served.",
    run: async (probe) => {
      const body = probe.form.body({ prompt: "Count to 200", stream: true });
      await probe.goodPost(body, { leave: { afterBytes: LEAVE_AFTER_BYTES } });
      const answer = await probe.post(probe.form.body(hello));
      probe.expect(answer.status === 200, `status ${answer.status}: ${short(answer.text)}`, answer);
    },
  },
  {
    name: "cancel-upstream",
    subject: "cancellation",
    rule: "ours",
    needs: "upstream",
    slow: true,
    says: "When a client goes away in the middle of a stream, the request to the upstream is ended, within ten seconds.",
    run: (probe) => leave(probe, { delayBetweenEventsMs: 200 }, { afterBytes: LEAVE_AFTER_BYTES }),
  },
  {
    name: "cancel-waiting",
    subject: "cancellation",
    rule: "ours",
    needs: "upstream",
    slow: true,
    says: "When a client goes away before the first byte, the request to the upstream is ended, within ten seconds.",
    run: (probe) => leave(probe, { hang: true }, { afterMs: 500 }),
  },
];
