#!/bin/sh
# Writes package-lock.json anew after a change of dependencies: complete for every platform (hence the fresh
# tree), without the address of the registry it was made against, and proven by `npm ci`.
set -eu
cd "$(dirname "$0")/.."
rm -rf node_modules package-lock.json
npm_config_omit_lockfile_registry_resolved=false npm install --loglevel=error
node -e '
  const fs = require("fs");
  const lock = JSON.parse(fs.readFileSync("package-lock.json", "utf8"));
  for (const entry of Object.values(lock.packages)) delete entry.resolved;
  fs.writeFileSync("package-lock.json", JSON.stringify(lock, null, 2) + "\n");
'
rm -rf node_modules
node hack/ensure.mjs
