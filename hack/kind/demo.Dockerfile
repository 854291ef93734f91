# The demo's models and pages, and the load of the rolling update, over the product's own image.
FROM gapura:kind
COPY hack hack
COPY test/fakes test/fakes
ENTRYPOINT ["node", "--disable-warning=ExperimentalWarning"]
CMD ["hack/kind/demo.ts"]
