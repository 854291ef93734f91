#!/usr/bin/env bash
# The charts in a real cluster (kind): needs docker, kind, kubectl and helm.
#
#   hack/kind/run.sh up          cluster, images, charts, the demo
#   hack/kind/run.sh check       every dialect and a server tool by curl, helm test, a rolling update under load
#   hack/kind/run.sh manifests   prints the demo's manifests as the cluster gets them
#   hack/kind/run.sh down        deletes the cluster
set -euo pipefail
cd "$(dirname "$0")/../.."

cluster=gapura
kubectl=(kubectl --context "kind-$cluster")
helm=(helm --kube-context "kind-$cluster" --namespace gapura)
upstream=http://demo-upstream.demo.svc:9400

# kind's addresses of Services: the demo's pages are inside the cluster, which page fetches reach only by permission.
service_cidr=10.96.0.0/16

manifests() {
  local file
  for file in hack/demo/*.yaml; do
    sed -e "s#http://127.0.0.1:9400#$upstream#g" -e "s#127.0.0.1/32#$service_cidr#g" "$file"
    echo "---"
  done
}

up() {
  kind get clusters | grep -qx "$cluster" || kind create cluster --name "$cluster" --config hack/kind/cluster.yaml --wait 120s
  docker build --tag gapura:kind .
  docker build --tag gapura-demo:kind --file hack/kind/demo.Dockerfile .
  kind load docker-image --name "$cluster" gapura:kind gapura-demo:kind

  "${kubectl[@]}" create namespace gapura --dry-run=client -o yaml | "${kubectl[@]}" apply -f -
  "${kubectl[@]}" label namespace gapura --overwrite pod-security.kubernetes.io/enforce=restricted
  "${kubectl[@]}" create namespace demo --dry-run=client -o yaml | "${kubectl[@]}" apply -f -

  "${helm[@]}" upgrade --install gapura-crds charts/gapura-crds
  "${helm[@]}" upgrade --install gapura charts/gapura \
    --set image.tag=kind --set image.pullPolicy=Never --set quickstart.enabled=true \
    --set dataPlane.resources.requests.cpu=100m
  "${kubectl[@]}" apply -f hack/kind/demo.yaml
  manifests | "${kubectl[@]}" --namespace demo apply -f -
  "${kubectl[@]}" --namespace demo rollout status deployment/demo-upstream --timeout 120s
  "${kubectl[@]}" --namespace gapura rollout status deployment/gapura-operator --timeout 120s
  "${kubectl[@]}" --namespace gapura rollout status deployment/gapura-data-plane --timeout 300s
}

key() {
  "${kubectl[@]}" --namespace demo get secret demo-key -o 'jsonpath={.data.api-key}' | base64 -d
}

# ask PATH BODY WORD: the answer must hold the word.
ask() {
  local answer
  answer=$(curl --silent --show-error --fail-with-body --max-time 60 "http://127.0.0.1:18080$1" \
    --header "authorization: Bearer $(key)" --header "content-type: application/json" --data "$2")
  if ! grep -q -- "$3" <<<"$answer"; then
    echo "$1: no $3 in: $answer" >&2
    return 1
  fi
  echo "ok $1"
}

check() {
  "${kubectl[@]}" --namespace demo wait --for=condition=Ready --timeout 180s \
    modelroute,toolpolicy,pricetable,organization --all
  "${helm[@]}" test gapura --logs

  "${kubectl[@]}" --namespace gapura port-forward service/gapura 18080:80 >/dev/null &
  local forward=$!
  # Expanded now: the function's variable is gone when the shell exits.
  # shellcheck disable=SC2064
  trap "kill $forward 2>/dev/null || true" EXIT
  local waited
  for waited in $(seq 1 50); do
    curl --silent --output /dev/null "http://127.0.0.1:18080/v1/models" && break
    sleep 0.2
  done
  echo "reached after $waited tries"
  local hello='[{"role":"user","content":"Hello!"}]'
  ask /v1/messages "{\"model\":\"demo-messages\",\"max_tokens\":100,\"messages\":$hello}" '"stop_reason":"end_turn"'
  ask /v1/chat/completions "{\"model\":\"demo-chat\",\"messages\":$hello}" '"finish_reason":"stop"'
  ask /v1/responses '{"model":"demo-responses","input":"Hello!"}' '"status":"completed"'
  ask /v1/messages "{\"model\":\"demo-chat\",\"max_tokens\":500,\"messages\":[{\"role\":\"user\",\"content\":\"Search for a gapura\"}],\"tools\":[{\"type\":\"web_search_20250305\",\"name\":\"web_search\"}]}" web_search_tool_result
  kill "$forward"

  # Every pod replaced under load: not one request may fail.
  "${kubectl[@]}" --namespace demo delete pod load --ignore-not-found
  "${kubectl[@]}" --namespace demo run load --image gapura-demo:kind --image-pull-policy Never --restart Never \
    --env "GAPURA_KEY=$(key)" -- hack/kind/load.ts http://gapura.gapura.svc 90
  sleep 5
  "${kubectl[@]}" --namespace gapura rollout restart deployment/gapura-data-plane
  "${kubectl[@]}" --namespace gapura rollout status deployment/gapura-data-plane --timeout 300s
  if ! "${kubectl[@]}" --namespace demo wait --for=jsonpath='{.status.phase}'=Succeeded pod/load --timeout 180s; then
    "${kubectl[@]}" --namespace demo logs load >&2
    return 1
  fi
  "${kubectl[@]}" --namespace demo logs load
}

case "${1:-}" in
  up | check | manifests) "$1" ;;
  down) kind delete cluster --name "$cluster" ;;
  *)
    sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
