/** An OTLP collector over HTTP on loopback: keeps every span and every histogram that it is sent. */
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";
import { z } from "zod";

const spanSchema = z.object({
  name: z.string(),
  kind: z.number(),
  traceId: z.string(),
  spanId: z.string(),
  parentSpanId: z.string().optional(),
  startTimeUnixNano: z.string(),
  endTimeUnixNano: z.string(),
  attributes: z.array(
    z.object({
      key: z.string(),
      value: z.object({
        stringValue: z.string().optional(),
        intValue: z.union([z.number(), z.string()]).optional(),
        boolValue: z.boolean().optional(),
      }),
    }),
  ),
  status: z.object({ message: z.string().optional() }),
});
const exportSchema = z.object({
  resourceSpans: z.array(
    z.object({
      resource: z.object({ attributes: spanSchema.shape.attributes }),
      scopeSpans: z.array(z.object({ spans: z.array(spanSchema) })),
    }),
  ),
});

const metricsSchema = z.object({
  resourceMetrics: z.array(
    z.object({
      resource: z.object({ attributes: spanSchema.shape.attributes }),
      scopeMetrics: z.array(
        z.object({
          metrics: z.array(
            z.object({
              name: z.string(),
              unit: z.string(),
              histogram: z.object({
                aggregationTemporality: z.number(),
                dataPoints: z.array(
                  z.object({
                    attributes: spanSchema.shape.attributes,
                    count: z.number(),
                    sum: z.number(),
                    bucketCounts: z.array(z.number()),
                    explicitBounds: z.array(z.number()),
                  }),
                ),
              }),
            }),
          ),
        }),
      ),
    }),
  ),
});

const kinds = ["UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER"];

export interface ExportedSpan {
  readonly name: string;
  /** SERVER, CLIENT, INTERNAL. */
  readonly kind: string;
  /** Attributes of the process that sent it. */
  readonly resource: Readonly<Record<string, string | number | boolean>>;
  readonly traceId: string;
  readonly spanId: string;
  readonly parentId: string | null;
  readonly ms: number;
  readonly attributes: Readonly<Record<string, string | number | boolean>>;
  /** Of a span that ended in an error. */
  readonly error: string | null;
}

/** One series of a histogram, cumulative. */
export interface ExportedHistogram {
  readonly name: string;
  readonly unit: string;
  readonly resource: Readonly<Record<string, string | number | boolean>>;
  readonly attributes: Readonly<Record<string, string | number | boolean>>;
  readonly count: number;
  readonly sum: number;
  readonly bounds: readonly number[];
}

export interface Collector extends AsyncDisposable {
  /** For `OTEL_EXPORTER_OTLP_ENDPOINT`. */
  readonly url: string;
  /** In the order of their ends. */
  readonly spans: ExportedSpan[];
  /** Of the newest export. */
  histograms: readonly ExportedHistogram[];
  /** Everything that came, as it came. */
  readonly bodies: string[];
}

export async function startCollector(): Promise<Collector> {
  const spans: ExportedSpan[] = [];
  const bodies: string[] = [];
  const server = createServer((request, response) => {
    void text(request).then((body) => {
      bodies.push(`${request.url} ${body}`);
      if (request.url === "/v1/metrics") collector.histograms = histogramsOf(body);
      else spans.push(...spansOf(body));
      response.writeHead(200, { "content-type": "application/json" }).end("{}");
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const collector: Collector = {
    url: `http://127.0.0.1:${port}`,
    spans,
    histograms: [],
    bodies,
    [Symbol.asyncDispose]: async () => {
      server.close().closeAllConnections();
    },
  };
  return collector;
}

/** @throws ZodError for what is no cumulative histogram. */
function histogramsOf(body: string): ExportedHistogram[] {
  return metricsSchema.parse(JSON.parse(body)).resourceMetrics.flatMap(({ resource, scopeMetrics }) =>
    scopeMetrics.flatMap(({ metrics }) =>
      metrics.flatMap(({ name, unit, histogram }) =>
        histogram.dataPoints.map(({ attributes, count, sum, explicitBounds }) => ({
          name,
          unit,
          resource: plainAll(resource.attributes),
          attributes: plainAll(attributes),
          count,
          sum,
          bounds: explicitBounds,
        })),
      ),
    ),
  );
}

function spansOf(body: string): ExportedSpan[] {
  const { resourceSpans } = exportSchema.parse(JSON.parse(body));
  return resourceSpans.flatMap(({ resource, scopeSpans }) =>
    scopeSpans.flatMap(({ spans }) =>
      spans.map(({ name, kind, traceId, spanId, parentSpanId, attributes, status, ...times }) => ({
        name,
        ms: Number(BigInt(times.endTimeUnixNano) - BigInt(times.startTimeUnixNano)) / 1e6,
        kind: kinds[kind] ?? "",
        resource: plainAll(resource.attributes),
        traceId,
        spanId,
        parentId: parentSpanId ?? null,
        attributes: plainAll(attributes),
        error: status.message ?? null,
      })),
    ),
  );
}

const plainAll = (attributes: z.infer<typeof spanSchema>["attributes"]) =>
  Object.fromEntries(attributes.map(({ key, value }) => [key, plain(value)]));

function plain({ stringValue, intValue, boolValue }: z.infer<typeof spanSchema>["attributes"][0]["value"]) {
  return stringValue ?? boolValue ?? Number(intValue);
}
