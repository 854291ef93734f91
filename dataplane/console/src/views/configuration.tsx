/** The configuration that is served, by generation, from the API; read-only, as it is declared elsewhere. */
import { useLoad } from "../lib/load.ts";
import { Badge, Section } from "../parts/basics.tsx";
import { Table } from "../parts/table.tsx";
import { admin } from "../session.ts";
import { useTexts } from "../texts/texts.ts";

const EVERY_MS = 15_000;

export default function Configuration() {
  const t = useTexts();
  const loaded = useLoad((signal) => admin("GET /v1/organization/configuration", { signal }), [], EVERY_MS);
  return (
    <>
      <p class="muted">{t.configuration.intro}</p>
      <Section loaded={loaded}>
        {({ data }) => (
          <Table
            name={t.views.configuration}
            rows={data}
            id={({ id }) => id}
            columns={[
              {
                title: t.configuration.object,
                heads: true,
                cell: ({ namespace, name }) => `${namespace}/${name}`,
              },
              { title: t.configuration.kind, cell: ({ kind }) => kind },
              {
                title: t.configuration.generation,
                numeric: true,
                cell: ({ generation }) => String(generation),
              },
              {
                title: t.configuration.conditions,
                long: true,
                cell: ({ conditions }) =>
                  conditions.map(({ type, status, reason, message }) => (
                    <span key={type}>
                      <Badge kind={status === "True" ? "good" : "warn"}>
                        {status === "True" ? type : reason}
                      </Badge>
                      <span class="second">{message}</span>
                    </span>
                  )),
              },
            ]}
          />
        )}
      </Section>
    </>
  );
}
