# One image, two programs: `dataplane/main.ts` (the default) and `operator/main.ts`. TypeScript runs unbuilt.
# Where there is no container engine, test/integration/image.test.ts runs these lines in folders.
FROM --platform=$BUILDPLATFORM node:24.21.0-bookworm-slim AS dependencies
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
# Plain JavaScript, the same for every architecture: no other one is emulated for it. Optional packages are for machines without a Node or a Postgres of their own.
RUN --mount=type=cache,target=/root/.npm npm ci --omit=dev --omit=optional --ignore-scripts

FROM --platform=$BUILDPLATFORM node:24.21.0-bookworm-slim AS console
WORKDIR /app
COPY package.json package-lock.json .npmrc tsconfig.json ./
# What bundles the console stands among the optional packages, as the running product does not need it.
RUN --mount=type=cache,target=/root/.npm npm ci --omit=dev --ignore-scripts
COPY dataplane/console dataplane/console
RUN node dataplane/console/build.ts

FROM node:24.21.0-bookworm-slim
WORKDIR /app
ENV NODE_ENV=production
# What glibc keeps of freed memory (hack/node-flags.ts).
ENV MALLOC_ARENA_MAX=2
COPY --from=dependencies /app/node_modules node_modules
COPY package.json ./
COPY dataplane dataplane
COPY operator operator
COPY --from=console /app/dist dist
USER 65532:65532
EXPOSE 8080 9090 9091
ENTRYPOINT ["node", "--max-semi-space-size=16", "--heap-growing-percent=30", "--no-memory-reducer-favors-memory", "--disable-warning=ExperimentalWarning"]
CMD ["dataplane/main.ts"]
